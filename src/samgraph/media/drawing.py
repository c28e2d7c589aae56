"""Visualisation of results: overlays, cut-outs, points and boxes, and a colour per object."""

import colorsys
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from samgraph.errors import ImageError, OptionError, OutputError
from samgraph.media.image.reading import Rgb, encode_image
from samgraph.media.mask.components import Mask
from samgraph.media.mask.geometry import masks_to_boxes

Colour = tuple[int, int, int]

POSITIVE: Colour = (46, 204, 64)
NEGATIVE: Colour = (255, 65, 54)
WHITE: Colour = (255, 255, 255)
GOLDEN = 0.6180339887498949


def object_colour(object_id: int) -> Colour:
    """The colour of an object in every image: hues in steps of the golden ratio."""
    hue = (0.58 + object_id * GOLDEN) % 1.0
    light = (0.62, 0.5, 0.72)[object_id % 3]
    red, green, blue = colorsys.hls_to_rgb(hue, light, 0.85)
    return round(255 * red), round(255 * green), round(255 * blue)


def davis_palette() -> bytes:
    """The 256 colours of DAVIS and Pascal VOC masks, as RGB triples.

    The bits of the index go to red, green and blue in rotation, highest bit of a colour first.
    """
    index = np.arange(256)
    table = np.zeros((256, 3), np.int64)
    for level in range(8):
        for channel in range(3):
            table[:, channel] |= ((index >> (3 * level + channel)) & 1) << (7 - level)
    return table.astype(np.uint8).tobytes()


def palette_png(labels: NDArray[np.uint8]) -> bytes:
    """A palette PNG in memory whose pixel values are object ids: uint8 [H, W], 0 for none."""
    if labels.ndim != 2 or labels.dtype != np.uint8:
        raise ImageError(
            "object ids of this kind do not fit a palette image",
            got=f"{labels.dtype}{list(labels.shape)}",
            expected="uint8[H, W]",
        )
    return encode_image(labels, "PNG", palette=davis_palette())


def label_map(
    masks: Iterable[Mask], object_ids: Iterable[int], size_hw: tuple[int, int]
) -> NDArray[np.uint8]:
    """The object id of each pixel, uint8 [H, W]; where masks overlap, the lowest id is on top.

    Raises:
        OutputError: An id is not within 1 to 255, the range of a palette image.
    """
    out = np.zeros(size_hw, np.uint8)
    for mask, object_id in zip(masks, object_ids, strict=True):
        if not 1 <= object_id <= 255:
            raise OutputError(
                f"object {object_id} does not fit in a palette image", expected="ids from 1 to 255"
            )
        out[mask & ((out == 0) | (out > object_id))] = object_id
    return out


def overlay(
    image: Rgb,
    masks: Mask,
    *,
    object_ids: Sequence[int] | None = None,
    opacity: float = 0.45,
    outline: int = 2,
) -> Rgb:
    """The image with each mask tinted in its object's colour and its edge drawn.

    Masks are [N, H, W]; without ids they are numbered from 1. The image is not changed.
    """
    if not 0 <= opacity <= 1:
        raise OptionError("opacity is a share", got=opacity, expected="0 to 1")
    if masks.ndim != 3 or masks.shape[1:] != image.shape[:2]:
        raise ImageError(
            "the masks are not those of this image",
            got=f"masks {list(masks.shape)}, image {list(image.shape)}",
            expected="masks [N, H, W], image [H, W, 3]",
        )
    ids = range(1, len(masks) + 1) if object_ids is None else object_ids
    out = image.copy()
    for mask, object_id, box in zip(masks, ids, masks_to_boxes(masks), strict=True):
        left, top, right, bottom = box
        part, inside = out[top:bottom, left:right], mask[top:bottom, left:right]
        edge = inside & ~_eroded(inside, outline)
        for channel, colour in enumerate(object_colour(object_id)):
            tint = np.rint(np.arange(256) * (1 - opacity) + colour * opacity).astype(np.uint8)
            plane = part[:, :, channel]
            np.copyto(plane, tint[plane], where=inside)
            np.copyto(plane, np.uint8(colour), where=edge)
    return out


def draw_points(image: Rgb, points_xy: Sequence[tuple[float, float]], labels: Sequence[int]) -> Rgb:
    """The image with a dot at each click: green for label 1, red for label 0."""
    canvas = Image.fromarray(image)
    draw = ImageDraw.Draw(canvas)
    radius = max(4, min(image.shape[:2]) // 120)
    for (x, y), label in zip(points_xy, labels, strict=True):
        corners = (x - radius, y - radius, x + radius, y + radius)
        fill = POSITIVE if label == 1 else NEGATIVE
        draw.ellipse(corners, fill=fill, outline=WHITE, width=max(1, radius // 3))
    return np.array(canvas)


def draw_boxes(
    image: Rgb,
    boxes_xyxy: Sequence[tuple[float, float, float, float]],
    object_ids: Sequence[int] | None = None,
) -> Rgb:
    """The image with boxes drawn, each in its object's colour, from any two opposite corners."""
    ids = range(1, len(boxes_xyxy) + 1) if object_ids is None else object_ids
    canvas = Image.fromarray(image)
    draw = ImageDraw.Draw(canvas)
    width = max(2, min(image.shape[:2]) // 300)
    for (x0, y0, x1, y1), object_id in zip(boxes_xyxy, ids, strict=True):
        corners = (min(x0, x1), min(y0, y1), max(x0, x1), max(y0, y1))
        draw.rectangle(corners, outline=object_colour(object_id), width=width)
    return np.array(canvas)


def cutout(
    image: Rgb, mask: Mask | NDArray[np.floating], *, crop: bool = False
) -> NDArray[np.uint8]:
    """The object alone, as RGBA: [H, W, 3] and [H, W] -> [H, W, 4].

    A mask of floats in 0..1 is used as the alpha channel. Transparent pixels are black too, so the
    background cannot be recovered. With `crop` only the object's box is returned; for an empty
    mask, the whole image.
    """
    if mask.shape != image.shape[:2]:
        raise ImageError(
            "the mask is not that of this image",
            got=f"mask {list(mask.shape)}, image {list(image.shape)}",
        )
    alpha = np.rint(np.clip(mask.astype(np.float32), 0, 1) * 255).astype(np.uint8)
    out = np.concatenate([np.where(alpha[:, :, None] > 0, image, 0), alpha[:, :, None]], axis=2)
    if not crop or not alpha.any():
        return out.astype(np.uint8)
    left, top, right, bottom = masks_to_boxes(alpha > 0)
    return np.ascontiguousarray(out[top:bottom, left:right], np.uint8)


def _eroded(mask: Mask, steps: int) -> Mask:
    """The pixels further than `steps` from the edge, counted along rows and columns."""
    out = np.pad(mask, 1)
    for _ in range(steps):
        out[1:-1, 1:-1] &= out[:-2, 1:-1] & out[2:, 1:-1] & out[1:-1, :-2] & out[1:-1, 2:]
    return out[1:-1, 1:-1]

"""Segments of an image as the bytes of a file, in each of the formats a result is saved in.

png        one mask: white on black; several objects: a number for each, by palette or 16 bits
cutout     the object alone, transparent around it
overlay    the image with the objects tinted
coco       annotations of COCO            labelme    a file for labelme
polygons   outlines as plain JSON         sam        the dicts of SAM's mask generator
yolo       segmentation labels of YOLO
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from samgraph.errors import OptionError, OutputError
from samgraph.formats.coco import coco_document
from samgraph.formats.labelme import labelme_document
from samgraph.formats.outlines import outlines_document
from samgraph.formats.sam import to_sam_dicts
from samgraph.formats.segment import Segment, SegmentedImage, labels_of
from samgraph.formats.yolo import yolo_lines
from samgraph.media.drawing import cutout, overlay, palette_png
from samgraph.media.image.reading import SUFFIXES, Rgb, encode_image
from samgraph.predict.picture import Picture
from samgraph.untrusted.text import json_bytes

Format: TypeAlias = Literal[
    "png", "cutout", "overlay", "coco", "labelme", "polygons", "sam", "yolo"
]
FORMATS: tuple[str, ...] = get_args(Format)
PICTURES = ("png", "cutout", "overlay")

_LOSSLESS = (".png", ".webp", ".tif", ".tiff")
_ALLOWED: dict[str, tuple[str, ...]] = {
    "png": (*_LOSSLESS, ".bmp"),
    "cutout": _LOSSLESS,
    "overlay": tuple(SUFFIXES),
    "yolo": (".txt",),
}
_BY_SUFFIX = {".png": "png", ".json": "coco", ".txt": "yolo"}
_AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """How to write: the name of the objects, and what each format leaves open."""

    label: str | None = None
    tolerance: float = 0.0
    crop: bool = False
    opacity: float = 0.45


def format_for(path: str, wanted: str | None) -> str:
    """The format to write `path` in: the one asked for, or the one its suffix stands for.

    Raises:
        OptionError: There is no such format.
        OutputError: The suffix says nothing, or the format cannot go into such a file.
    """
    suffix = PurePath(path).suffix.lower()
    if wanted is None:
        found = _BY_SUFFIX.get(suffix, "overlay" if suffix in SUFFIXES else None)
        if found is None:
            raise OutputError(
                f"`{path}` does not say what to write",
                got=suffix or "no suffix",
                expected=".png, .jpg, .webp, .json or .txt",
                hint=f"name it `{path}.png`",
            )
        return found
    if wanted not in FORMATS:
        raise OptionError(f"there is no format `{wanted}`", expected=", ".join(FORMATS))
    allowed = _ALLOWED.get(wanted, (".json",))
    if suffix not in allowed:
        raise OutputError(
            f"`{path}` cannot hold the format {wanted}",
            got=suffix or "no suffix",
            expected=", ".join(allowed),
        )
    return wanted


def default_suffix(kind: str) -> str:
    """The suffix a file of this format is given where only its folder is named."""
    if kind == "overlay":
        return ".jpg"
    return _ALLOWED.get(kind, (".json",))[0]


def render(
    kind: str, suffix: str, picture: Picture, segments: Sequence[Segment], look: WriteOptions
) -> bytes:
    """The content of a file."""
    if kind == "png":
        return _mask_bytes(picture, segments, SUFFIXES[suffix])
    if kind == "cutout":
        cut = cutout(picture.need_pixels(), _union(picture, segments), crop=look.crop)
        return encode_image(cut, SUFFIXES[suffix])
    if kind == "overlay":
        drawn = draw(picture.need_pixels(), segments, look.opacity)
        return encode_image(drawn, SUFFIXES[suffix])
    image = SegmentedImage(picture.name, picture.size_hw, labelled(segments, look.label))
    if kind == "yolo":
        lines = yolo_lines(image, labels_of([image]), tolerance=look.tolerance)
        return "".join(f"{line}\n" for line in lines).encode("ascii")
    return json_bytes(document(kind, [image], look.tolerance))


def document(kind: str, images: Sequence[SegmentedImage], tolerance: float = 0.0) -> Any:
    """The JSON value of images in one of the formats that are JSON."""
    if kind == "coco":
        return coco_document(images, polygons=tolerance > 0, tolerance=tolerance)
    if kind == "polygons":
        return outlines_document(images, tolerance=tolerance)
    if kind == "sam":
        return [
            {
                "image": image.name,
                "height": image.size_hw[0],
                "width": image.size_hw[1],
                "masks": to_sam_dicts(image.segments, "coco_rle"),
            }
            for image in images
        ]
    (image,) = images
    return labelme_document(image, polygons=tolerance > 0, tolerance=tolerance)


def labelled(segments: Sequence[Segment], label: str | None) -> tuple[Segment, ...]:
    """The segments under one name, where one is given."""
    if label is None:
        return tuple(segments)
    return tuple(replace(segment, label=label) for segment in segments)


def label_map(picture: Picture, segments: Sequence[Segment]) -> NDArray[np.int32]:
    """The number of the segment at each pixel, from 1; 0 for none. Small ones lie on top."""
    out = np.zeros(picture.size_hw, np.int32)
    for index in _large_first(segments):
        out[segments[index].mask] = index + 1
    return out


def draw(pixels: Rgb, segments: Sequence[Segment], opacity: float = 0.45) -> Rgb:
    """The image with every segment tinted, small ones on top; a few masks are held at a time."""
    order = _large_first(segments)
    for start in range(0, len(order), _AT_ONCE):
        some = order[start : start + _AT_ONCE]
        masks = np.stack([segments[index].mask for index in some])
        ids = [index + 1 for index in some]
        pixels = overlay(pixels, masks, object_ids=ids, opacity=opacity)
    return pixels


def _large_first(segments: Sequence[Segment]) -> list[int]:
    areas = [segment.area for segment in segments]
    return sorted(range(len(areas)), key=lambda index: -areas[index])


def _union(picture: Picture, segments: Sequence[Segment]) -> NDArray[np.bool_]:
    out = np.zeros(picture.size_hw, np.bool_)
    for segment in segments:
        out |= segment.mask
    return out


def _mask_bytes(picture: Picture, segments: Sequence[Segment], image_format: str) -> bytes:
    if len(segments) <= 1:
        return encode_image(_union(picture, segments).astype(np.uint8) * 255, image_format)
    labels = label_map(picture, segments)
    if len(segments) <= 255 and image_format == "PNG":
        return palette_png(labels.astype(np.uint8))
    return encode_image(labels.astype(np.uint16), image_format)

"""Segments as image files: masks, cut-outs and overlays, encoded as bytes."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from samgraph.errors import OutputError
from samgraph.formats.segment import Segment, SegmentedImage, label_image
from samgraph.media.drawing import cutout, overlay, palette_png
from samgraph.media.image.reading import SUFFIXES, Rgb, encode_image

LOSSLESS = (".png", ".webp", ".tif", ".tiff")
OPACITY = 0.45
LARGEST_NUMBER = 65535  # in 16 bits
_MASKS_AT_ONCE = 8


def mask_bytes(image: SegmentedImage, suffix: str) -> bytes:
    """One segment as white on black; several as a label map, with a palette or in 16 bits."""
    file_format = SUFFIXES[suffix]
    if len(image.segments) <= 1:
        return encode_image(_union(image).astype(np.uint8) * 255, file_format)
    labels = ranked_label_map(image)
    if labels.max(initial=0) <= 255 and file_format == "PNG":
        return palette_png(labels.astype(np.uint8))
    return encode_image(labels.astype(np.uint16), file_format)


def cutout_bytes(image: SegmentedImage, suffix: str, *, crop: bool = False) -> bytes:
    """The pixels of all segments, transparent around them; cropped to their box on request."""
    cut = cutout(image.need_pixels(), _union(image), crop=crop)
    return encode_image(cut, SUFFIXES[suffix])


def overlay_bytes(image: SegmentedImage, suffix: str, opacity: float = OPACITY) -> bytes:
    """The image with its segments tinted."""
    drawn = draw_segments(image.need_pixels(), image.segments, opacity)
    return encode_image(drawn, SUFFIXES[suffix])


def davis_bytes(image: SegmentedImage) -> bytes:
    """A palette PNG whose pixel values are object ids."""
    return palette_png(label_image(image))


def segment_number(segment: Segment, index: int) -> int:
    """The number of a segment in pictures, which decides its colour: its object's, or its index."""
    return index + 1 if segment.object_id is None else segment.object_id


def object_bytes(image: SegmentedImage) -> bytes:
    """A palette PNG of one object, as SA-V has them: 1 on the object, 0 elsewhere."""
    return palette_png(_union(image).astype(np.uint8))


def ranked_label_map(image: SegmentedImage) -> NDArray[np.int32]:
    """The number of the segment at each pixel, from 1; 0 for none. Small segments are on top."""
    out = np.zeros(image.size_hw, np.int32)
    for index in _large_first(image.segments):
        number = segment_number(image.segments[index], index)
        if not 1 <= number <= LARGEST_NUMBER:
            raise OutputError(
                f"object {number} does not fit in a label map",
                expected=f"ids from 1 to {LARGEST_NUMBER}",
            )
        out[image.segments[index].mask] = number
    return out


def draw_segments(pixels: Rgb, segments: Sequence[Segment], opacity: float = OPACITY) -> Rgb:
    """The image with its segments tinted, small segments on top; at most eight masks in memory."""
    order = _large_first(segments)
    for start in range(0, len(order), _MASKS_AT_ONCE):
        some = order[start : start + _MASKS_AT_ONCE]
        masks = np.stack([segments[index].mask for index in some])
        ids = [segment_number(segments[index], index) for index in some]
        pixels = overlay(pixels, masks, object_ids=ids, opacity=opacity)
    return pixels


def _large_first(segments: Sequence[Segment]) -> list[int]:
    areas = [segment.area for segment in segments]
    return sorted(range(len(areas)), key=lambda index: -areas[index])


def _union(image: SegmentedImage) -> NDArray[np.bool_]:
    out = np.zeros(image.size_hw, np.bool_)
    for segment in image.segments:
        out |= segment.mask
    return out

"""labelme annotations: one JSON file beside each image.

A shape of type `mask` has two points, the first and the last pixel of its box (both inside), and
the crop between them as a base64 PNG of 0 and 1. A polygon has its corners. Shapes of one object
share a `group_id`, which is the only link between the polygons of an object in several parts.
"""

import base64
import binascii
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from samgraph.errors import ImageError
from samgraph.formats.records import (
    Effort,
    corners,
    read_json,
    take,
    take_integer,
    take_number,
    take_size,
    write_json,
)
from samgraph.formats.segment import DEFAULT_LABEL, Segment, SegmentedImage, file_stems
from samgraph.media.image.reading import encode_image, image_size, read_label_image
from samgraph.media.mask import rle as run_lengths
from samgraph.media.mask.polygons import join_rings, mask_to_polygons, polygons_to_rle
from samgraph.media.mask.rle import Rle

VERSION = "5.5.0"


def write_labelme(
    folder: str | os.PathLike[str],
    images: Iterable[SegmentedImage],
    *,
    polygons: bool = False,
    tolerance: float = 0.0,
) -> None:
    """Write a JSON file per image, named after the image."""
    images = list(images)
    for stem, image in zip(file_stems(images), images, strict=True):
        document = labelme_document(image, polygons=polygons, tolerance=tolerance)
        write_json(Path(folder) / f"{stem}.json", document)


def labelme_document(
    image: SegmentedImage, *, polygons: bool = False, tolerance: float = 0.0
) -> dict[str, Any]:
    """One file as a value for `json.dumps`; it names the image and does not embed it."""
    shapes = []
    unused = 1 + max((segment.object_id or 0 for segment in image.segments), default=0)
    for index, segment in enumerate(image.segments):
        if segment.area == 0:
            continue
        parts = _polygons(segment, tolerance) if polygons else [_mask(segment)]
        group = unused + index if len(parts) > 1 else None
        group = group if segment.object_id is None else segment.object_id
        shapes += [_shape(segment, part, group) for part in parts]
    height, width = image.size_hw
    return {
        "version": VERSION,
        "flags": {},
        "shapes": shapes,
        "imagePath": image.name,
        "imageData": None,
        "imageHeight": height,
        "imageWidth": width,
    }


def read_labelme(path: str | os.PathLike[str]) -> SegmentedImage:
    """The masks and polygons of one file; shapes of one label and group are one segment.

    Other shapes (circles, lines, points) are ignored.

    Raises:
        ImageError: The file is missing, is not labelme's, or a shape in it is damaged.
    """
    document, where, effort = read_json(path), f"`{path}`", Effort(path)
    size_hw = take_size(document, "imageHeight", "imageWidth", where)
    groups: dict[object, list[Mapping[str, Any]]] = {}
    for shape in take(document, "shapes", list, where):
        kind, label = take(shape, "shape_type", str, where), take(shape, "label", str, where)
        if kind in ("mask", "polygon"):
            group = take_integer(shape, "group_id")
            groups.setdefault(len(groups) if group is None else (label, group), []).append(shape)
    segments = tuple(
        Segment(
            _read_group(shapes, size_hw, where, effort),
            label=shapes[-1]["label"],
            score=take_number(shapes[-1], "score"),
            object_id=take_integer(shapes[-1], "group_id"),
        )
        for shapes in groups.values()
    )
    return SegmentedImage(take(document, "imagePath", str, where), size_hw, segments)


def _shape(segment: Segment, part: dict[str, Any], group: int | None) -> dict[str, Any]:
    shape = {
        "label": segment.label or DEFAULT_LABEL,
        "group_id": group,
        "description": "",
        "flags": {},
        **part,
    }
    return shape if segment.score is None else {**shape, "score": segment.score}


def _mask(segment: Segment) -> dict[str, Any]:
    left, top, width, height = run_lengths.to_bbox(segment.rle)
    crop = segment.mask[top : top + height, left : left + width]
    png = encode_image(crop.astype(np.uint8))
    last = [left + width - 1, top + height - 1]
    return {
        "shape_type": "mask",
        "points": [[float(left), float(top)], [float(last[0]), float(last[1])]],
        "mask": base64.b64encode(png).decode("ascii"),
    }


def _polygons(segment: Segment, tolerance: float) -> list[dict[str, Any]]:
    return [
        {"shape_type": "polygon", "points": join_rings(outline.rings).tolist(), "mask": None}
        for outline in mask_to_polygons(segment.mask, tolerance)
    ]


def _read_group(
    shapes: Sequence[Mapping[str, Any]], size_hw: tuple[int, int], where: str, effort: Effort
) -> Rle:
    """All shapes of a segment together. One mask of the image at most is in memory."""
    rings = [
        corners(take(shape, "points", list, where), where)
        for shape in shapes
        if shape["shape_type"] == "polygon"
    ]
    masks = [shape for shape in shapes if shape["shape_type"] == "mask"]
    if not masks:
        return polygons_to_rle(rings, size_hw, effort.spend)
    if len(shapes) == 1:
        return run_lengths.encode_at(*_read_mask(masks[0], size_hw, where, effort), size_hw)
    effort.spend(size_hw[0] * size_hw[1])
    whole = run_lengths.decode(polygons_to_rle(rings, size_hw, effort.spend))
    for shape in masks:
        crop, top, left = _read_mask(shape, size_hw, where, effort)
        whole[top : top + crop.shape[0], left : left + crop.shape[1]] |= crop
    return run_lengths.encode(whole)


def _read_mask(
    shape: Mapping[str, Any], size_hw: tuple[int, int], where: str, effort: Effort
) -> tuple[NDArray[np.bool_], int, int]:
    """The crop of a mask, and the row and column of its first pixel."""
    points = take(shape, "points", list, where)
    text = take(shape, "mask", str, where)
    try:
        data = base64.b64decode(text, validate=True)
        left, top = (int(min(axis)) for axis in zip(*points, strict=True))
    except (binascii.Error, TypeError, ValueError, OverflowError) as error:
        raise ImageError(f"{where} has a damaged mask") from error
    height, width = image_size(data)
    if left < 0 or top < 0 or left + width > size_hw[1] or top + height > size_hw[0]:
        raise ImageError(f"{where} has a mask that reaches out of its image")
    effort.spend(height * width)
    return read_label_image(data, max_pixels=run_lengths.MAX_PIXELS) > 0, top, left

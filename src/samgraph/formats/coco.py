"""COCO instance annotations: one JSON file for many images.

    {"images":      [{"id": 1, "file_name": "cat.jpg", "height": 480, "width": 640}],
     "categories":  [{"id": 1, "name": "cat"}],
     "annotations": [{"id": 1, "image_id": 1, "category_id": 1, "iscrowd": 0,
                      "segmentation": {"size": [480, 640], "counts": "..."},
                      "area": 5120, "bbox": [x, y, width, height], "score": 0.97}]}

A segmentation is run-length encoded, which is exact, or, on request, polygons. COCO polygons have
no holes: a hole is joined to its outline by a slit. What COCO does not define goes under keys that
pycocotools ignores: `score`, `stability_score`, `track_id`, `point_coords`.
"""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from samgraph.errors import ImageError
from samgraph.formats.records import (
    Effort,
    corners,
    first_point,
    read_json,
    take,
    take_integer,
    take_number,
    take_size,
    write_json,
)
from samgraph.formats.segment import DEFAULT_LABEL, Segment, SegmentedImage, labels_of
from samgraph.media.mask import rle as run_lengths
from samgraph.media.mask.polygons import join_rings, mask_to_polygons, polygons_to_rle


def write_coco(
    path: str | os.PathLike[str],
    images: Iterable[SegmentedImage],
    *,
    polygons: bool = False,
    tolerance: float = 0.0,
) -> None:
    """Write one annotation file for all the images."""
    write_json(path, coco_document(images, polygons=polygons, tolerance=tolerance))


def coco_document(
    images: Iterable[SegmentedImage], *, polygons: bool = False, tolerance: float = 0.0
) -> dict[str, Any]:
    """The annotation file as a value for `json.dumps`."""
    images = list(images)
    category = {name: index for index, name in enumerate(labels_of(images), start=1)}
    annotations: list[dict[str, Any]] = []
    for image_id, image in enumerate(images, start=1):
        for segment in image.segments:
            annotations.append(
                {
                    "id": len(annotations) + 1,
                    "image_id": image_id,
                    "category_id": category[segment.label or DEFAULT_LABEL],
                    "iscrowd": 0,
                    **annotation_of(segment, polygons=polygons, tolerance=tolerance),
                }
            )
    return {
        "info": {"description": "masks by samgraph"},
        "images": [
            {"id": index, "file_name": image.name, "height": h, "width": w}
            for index, image in enumerate(images, start=1)
            for h, w in [image.size_hw]
        ],
        "categories": [{"id": index, "name": name} for name, index in category.items()],
        "annotations": annotations,
    }


def read_coco(path: str | os.PathLike[str]) -> list[SegmentedImage]:
    """The images of an annotation file with their segments.

    Raises:
        ImageError: The file is missing, is not COCO, or an annotation in it is damaged.
    """
    document, where, effort = read_json(path), f"`{path}`", Effort(path)
    names = {
        take(category, "id", int, where): take(category, "name", str, where)
        for category in take(document, "categories", list, where)
    }
    found: dict[int, _Found] = {}
    for record in take(document, "images", list, where):
        size_hw = take_size(record, "height", "width", where)
        name = take(record, "file_name", str, where)
        found[take(record, "id", int, where)] = _Found(name, size_hw, [])
    for record in take(document, "annotations", list, where):
        image_id = take(record, "image_id", int, where)
        if image_id not in found:
            raise ImageError(f"{where} has an annotation of image {image_id}, which it lacks")
        image = found[image_id]
        label = names.get(take(record, "category_id", int, where))
        image.segments.append(_segment(record, image.size_hw, label, where, effort))
    return [
        SegmentedImage(item.name, item.size_hw, tuple(item.segments)) for item in found.values()
    ]


@dataclass(frozen=True, slots=True)
class _Found:
    name: str
    size_hw: tuple[int, int]
    segments: list[Segment]


def annotation_of(
    segment: Segment, *, polygons: bool = False, tolerance: float = 0.0
) -> dict[str, Any]:
    """The fields of an annotation that describe the segment: all but ids and category."""
    left, top, width, height = run_lengths.to_bbox(segment.rle)
    shape: object = run_lengths.to_json(segment.rle)
    if polygons:
        outlines = mask_to_polygons(segment.mask, tolerance)
        shape = [join_rings(outline.rings).ravel().tolist() for outline in outlines]
    extra = {
        "score": segment.score,
        "stability_score": segment.stability,
        "track_id": segment.object_id,
        "point_coords": None if segment.point_xy is None else [list(segment.point_xy)],
    }
    return {
        "segmentation": shape,
        "area": segment.area,
        "bbox": [left, top, width, height],
        **{name: value for name, value in extra.items() if value is not None},
    }


def _segment(
    record: Mapping[str, Any],
    size_hw: tuple[int, int],
    label: str | None,
    where: str,
    effort: Effort,
) -> Segment:
    shape = record.get("segmentation")
    if isinstance(shape, Mapping):
        encoded = run_lengths.from_counts(run_lengths.counts_of(shape), tuple(shape["size"]))
        if tuple(encoded["size"]) != size_hw:
            raise ImageError(
                f"{where} has a mask of another size than its image",
                got=f"{encoded['size']}",
                expected=f"{list(size_hw)}",
            )
    elif isinstance(shape, list):
        rings = [corners(points, where) for points in shape]
        encoded = polygons_to_rle(rings, size_hw, effort.spend)
    else:
        raise ImageError(f"{where} has an annotation without a usable `segmentation`")
    return Segment(
        encoded,
        label=label,
        score=take_number(record, "score"),
        stability=take_number(record, "stability_score"),
        object_id=take_integer(record, "track_id" if "track_id" in record else "instance_id"),
        point_xy=first_point(record.get("point_coords")),
    )


def _point(value: object) -> tuple[float, float] | None:
    """The first of a list of points, the layout of SAM's automatic masks."""
    match value:
        case [[int() | float() as x, int() | float() as y], *_]:
            return float(x), float(y)
    return None

"""Outlines as plain JSON: polygons with their holes, and nothing else.

[{"image": "cat.jpg", "height": 480, "width": 640,
  "masks": [{"score": 0.97, "label": "cat",
             "polygons": [{"outer": [[x, y], ...], "holes": [[[x, y], ...]]}]}]}]
"""

import os
from collections.abc import Iterable
from typing import Any

from samgraph.formats.records import write_json
from samgraph.formats.segment import Segment, SegmentedImage
from samgraph.media.mask.polygons import mask_to_polygons


def write_outlines(
    path: str | os.PathLike[str], images: Iterable[SegmentedImage], *, tolerance: float = 0.0
) -> None:
    """Write one file for all the images."""
    write_json(path, outlines_document(images, tolerance=tolerance))


def outlines_document(
    images: Iterable[SegmentedImage], *, tolerance: float = 0.0
) -> list[dict[str, Any]]:
    """The file as a value for `json.dumps`."""
    return [
        {
            "image": image.name,
            "height": image.size_hw[0],
            "width": image.size_hw[1],
            "masks": [_described(segment, tolerance) for segment in image.segments],
        }
        for image in images
    ]


def _described(segment: Segment, tolerance: float) -> dict[str, Any]:
    known = {"score": segment.score, "label": segment.label, "object_id": segment.object_id}
    polygons = [
        {"outer": shape.outer.tolist(), "holes": [hole.tolist() for hole in shape.holes]}
        for shape in mask_to_polygons(segment.mask, tolerance)
    ]
    return {**{k: v for k, v in known.items() if v is not None}, "polygons": polygons}

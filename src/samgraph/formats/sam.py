"""The list of dicts that SAM's automatic mask generator returns, which many tools read.

segmentation      bool [H, W], or run-length encoded
area              pixels
bbox              [x, y, width, height] from the first pixel to the last: one less than COCO's
predicted_iou     the model's own estimate of the mask's IoU
point_coords      [[x, y]], the point that prompted it
stability_score   IoU of the mask at a higher and at a lower threshold
crop_box          [x, y, width, height] of the crop it was predicted in
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from samgraph.errors import ImageError, OptionError
from samgraph.formats.records import as_number, first_point, take_integer, take_number, write_json
from samgraph.formats.segment import Segment, SegmentedImage
from samgraph.media.mask import rle as run_lengths

Mode = Literal["binary_mask", "uncompressed_rle", "coco_rle"]


def to_sam_dicts(segments: Iterable[Segment], mode: Mode = "binary_mask") -> list[dict[str, Any]]:
    """SAM's dicts; `mode` is the encoding of `segmentation`, by the reference's names."""
    if mode not in ("binary_mask", "uncompressed_rle", "coco_rle"):
        raise OptionError(
            "unknown mask encoding", got=mode, expected="binary_mask, uncompressed_rle or coco_rle"
        )
    return [_to_dict(segment, mode) for segment in segments]


def from_sam_dicts(dicts: Sequence[Mapping[str, Any]]) -> list[Segment]:
    """Segments from SAM's dicts, in any of the three encodings.

    Raises:
        ImageError: A dict has no usable `segmentation`.
    """
    if not isinstance(dicts, Sequence):
        raise ImageError("SAM's masks are a list of dicts", got=f"a {type(dicts).__name__}")
    return [_from_dict(record) for record in dicts]


def write_sam(path: str | os.PathLike[str], images: Iterable[SegmentedImage]) -> None:
    """Write one JSON file for all images."""
    write_json(path, sam_document(images))


def sam_document(images: Iterable[SegmentedImage]) -> list[dict[str, Any]]:
    """For `json.dumps`: the name, size and SAM's dicts (COCO RLE) of each image."""
    return [
        {
            "image": image.name,
            "height": image.size_hw[0],
            "width": image.size_hw[1],
            "masks": to_sam_dicts(image.segments, "coco_rle"),
        }
        for image in images
    ]


def _to_dict(segment: Segment, mode: Mode) -> dict[str, Any]:
    left, top, width, height = run_lengths.to_bbox(segment.rle)
    shape: object
    if mode == "binary_mask":
        shape = segment.mask
    elif mode == "coco_rle":
        shape = run_lengths.to_json(segment.rle)
    else:
        shape = run_lengths.uncompressed(segment.rle)
    h, w = segment.size_hw
    x0, y0, x1, y1 = segment.crop_xyxy or (0, 0, w, h)
    record = {
        "segmentation": shape,
        "area": segment.area,
        "bbox": [left, top, max(width - 1, 0), max(height - 1, 0)],
        "predicted_iou": segment.score,
        "point_coords": [] if segment.point_xy is None else [list(segment.point_xy)],
        "stability_score": segment.stability,
        "crop_box": [x0, y0, x1 - x0, y1 - y0],
    }
    named = {"label": segment.label, "object_id": segment.object_id}
    return record | {key: value for key, value in named.items() if value is not None}


def _from_dict(record: Mapping[str, Any]) -> Segment:
    if not isinstance(record, Mapping):
        raise ImageError("this is not one of SAM's masks", got=f"a {type(record).__name__}")
    shape = record.get("segmentation")
    if isinstance(shape, np.ndarray):
        encoded = run_lengths.encode(shape.astype(np.bool_))
    elif isinstance(shape, Mapping):
        counts = run_lengths.counts_of(shape)
        encoded = run_lengths.from_counts(counts, (int(shape["size"][0]), int(shape["size"][1])))
    else:
        raise ImageError(
            "this is not one of SAM's masks",
            got=f"a `segmentation` that is a {type(shape).__name__}",
            expected="a mask or a run-length encoding",
        )
    label = record.get("label")
    return Segment(
        encoded,
        label=label if isinstance(label, str) else None,
        score=take_number(record, "predicted_iou"),
        stability=take_number(record, "stability_score"),
        object_id=take_integer(record, "object_id"),
        point_xy=first_point(record.get("point_coords")),
        crop_xyxy=_crop(record.get("crop_box")),
    )


def _crop(value: object) -> tuple[float, float, float, float] | None:
    numbers = [as_number(item) for item in value] if isinstance(value, list | tuple) else []
    match numbers:
        case [float() as x, float() as y, float() as w, float() as h]:
            return x, y, x + w, y + h
    return None

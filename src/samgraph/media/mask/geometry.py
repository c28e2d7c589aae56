"""Areas, boxes and IoU of masks, stability scores, and non-maximum suppression.

Components and polygons have their own modules and are re-exported here.
"""

import numpy as np
from numpy.typing import NDArray

from samgraph.errors import ImageError, OptionError
from samgraph.media.mask.components import (
    Connectivity,
    Mask,
    connected_components,
    drop_specks,
    fill_holes,
    smooth,
)
from samgraph.media.mask.polygons import (
    Polygon,
    join_rings,
    mask_to_polygons,
    polygons_to_mask,
    simplify,
)

__all__ = [
    "Connectivity",
    "Mask",
    "Polygon",
    "batched_nms",
    "connected_components",
    "drop_specks",
    "fill_holes",
    "join_rings",
    "mask_areas",
    "mask_iou",
    "mask_to_polygons",
    "masks_to_boxes",
    "nms",
    "polygons_to_mask",
    "simplify",
    "smooth",
    "stability_score",
]


def mask_areas(masks: Mask) -> NDArray[np.int64]:
    """The number of pixels in each mask: bool [..., H, W] -> [...]."""
    return np.asarray(np.count_nonzero(_check_masks(masks), axis=(-2, -1)), np.int64)


def masks_to_boxes(masks: Mask, *, inclusive: bool = False) -> NDArray[np.int64]:
    """The tight box (left, top, right, bottom) of each mask: bool [..., H, W] -> [..., 4].

    The right and bottom edges are those of the last pixel, so that `right - left` is a width. With
    `inclusive` they are the last pixel's index instead, which is what the reference's
    `batched_mask_to_box` gives. An empty mask has the box 0, 0, 0, 0.
    """
    _check_masks(masks)
    extra = 0 if inclusive else 1
    ends = []
    for axis in (-2, -1):
        line: Mask = np.asarray(masks.any(axis=axis))
        low = line.argmax(axis=-1)
        high = line.shape[-1] - 1 - line[..., ::-1].argmax(axis=-1)
        ends.append((low, high + extra))
    (left, right), (top, bottom) = ends
    boxes = np.stack([left, top, right, bottom], axis=-1)
    empty = ~np.asarray(masks.any(axis=(-2, -1)))
    boxes[empty] = 0
    return boxes.astype(np.int64)


def mask_iou(first: Mask, second: Mask) -> NDArray[np.float64]:
    """Intersection over union of every pair: bool [N, H, W], [M, H, W] -> [N, M].

    The IoU of two empty masks is 0.
    """
    if first.ndim != 3 or second.ndim != 3 or first.shape[1:] != second.shape[1:]:
        raise ImageError(
            "masks of different sizes cannot overlap",
            got=f"{list(first.shape)} and {list(second.shape)}",
            expected="[N, H, W] and [M, H, W]",
        )
    one, two = _bits(first), _bits(second)
    common = np.empty((len(one), len(two)), np.int64)
    for index, bits in enumerate(one):
        common[index] = np.bitwise_count(two & bits).sum(axis=1, dtype=np.int64)
    union = mask_areas(first)[:, None] + mask_areas(second)[None] - common
    return np.asarray(common / np.maximum(union, 1))


def stability_score(
    logits: NDArray[np.floating], threshold: float = 0.0, offset: float = 1.0
) -> NDArray[np.float32]:
    """The stability score of each mask of logits: floats [..., H, W] -> [...].

    The number of pixels above `threshold + offset` over those above `threshold - offset`; 0 for an
    empty mask. Differs from the original: that gives NaN.
    """
    core = np.count_nonzero(logits > threshold + offset, axis=(-2, -1))
    reach = np.count_nonzero(logits > threshold - offset, axis=(-2, -1))
    return np.asarray(core / np.maximum(reach, 1), np.float32)


def nms(
    boxes_xyxy: NDArray[np.floating], scores: NDArray[np.floating], iou_threshold: float
) -> NDArray[np.int64]:
    """Non-maximum suppression: the indices of the boxes to keep, best score first.

    As torchvision: of equal scores the lower index wins, and an IoU equal to the threshold is kept.
    """
    return batched_nms(boxes_xyxy, scores, np.zeros(len(scores), np.int64), iou_threshold)


def batched_nms(
    boxes_xyxy: NDArray[np.floating],
    scores: NDArray[np.floating],
    categories: NDArray[np.integer],
    iou_threshold: float,
) -> NDArray[np.int64]:
    """As `nms`, within each category."""
    _check_boxes(boxes_xyxy, scores, categories)
    order = np.argsort(-scores, kind="stable")
    left, top, right, bottom = boxes_xyxy[order].T
    columns = np.stack([left, top, right, bottom, (right - left) * (bottom - top)])
    category = categories[order]
    limit = np.float64(iou_threshold)  # torchvision compares in double; float32 would round it
    fallen = np.zeros(len(order), np.bool_)
    with np.errstate(divide="ignore", invalid="ignore"):
        for best in range(len(order)):
            if not fallen[best]:
                overlap = _overlap(columns[:, best], columns[:, best + 1 :])
                rivals = category[best + 1 :] == category[best]
                fallen[best + 1 :] |= (overlap > limit) & rivals
    kept: NDArray[np.int64] = order[~fallen].astype(np.int64)
    return kept


def _overlap(box: NDArray[np.floating], others: NDArray[np.floating]) -> NDArray[np.floating]:
    """Intersection over union of one box with many; rows are left, top, right, bottom, area."""
    width = np.minimum(box[2], others[2]) - np.maximum(box[0], others[0])
    height = np.minimum(box[3], others[3]) - np.maximum(box[1], others[1])
    common = np.maximum(width, 0) * np.maximum(height, 0)
    return np.asarray(common / (box[4] + others[4] - common))


def _bits(masks: Mask) -> NDArray[np.uint64]:
    """Masks as rows of 64-bit words: [N, H, W] -> [N, words]."""
    packed = np.packbits(masks.reshape(len(masks), -1), axis=1)
    padded = np.zeros((len(masks), -(-packed.shape[1] // 8) * 8), np.uint8)
    padded[:, : packed.shape[1]] = packed
    return padded.view(np.uint64)


def _check_masks(masks: Mask) -> Mask:
    if masks.ndim < 2 or masks.dtype != np.bool_ or 0 in masks.shape[-2:]:
        raise ImageError(
            "these are not masks",
            got=f"{masks.dtype}{list(masks.shape)}",
            expected="bool[..., H, W]",
            hint="threshold them first: `masks > 0`",
        )
    return masks


def _check_boxes(
    boxes: NDArray[np.floating], scores: NDArray[np.floating], categories: NDArray[np.integer]
) -> None:
    if boxes.ndim != 2 or boxes.shape[1] != 4 or scores.shape != (len(boxes),):
        raise OptionError(
            "there must be one score for each box",
            got=f"boxes {list(boxes.shape)}, scores {list(scores.shape)}",
            expected="boxes [N, 4], scores [N]",
        )
    if categories.shape != scores.shape:
        raise OptionError(
            "there must be one category for each box",
            got=f"{list(categories.shape)}",
            expected=f"{list(scores.shape)}",
        )

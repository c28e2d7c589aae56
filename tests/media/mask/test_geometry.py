import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray
from pycocotools import mask as coco

from samgraph.errors import ImageError, OptionError
from samgraph.media.mask.geometry import (
    batched_nms,
    mask_areas,
    mask_iou,
    masks_to_boxes,
    nms,
    stability_score,
)
from tests.media.shapes import Mask, discs, masks, picture


def slow_nms(boxes: NDArray[np.float32], scores: NDArray[np.float32], limit: float) -> list[int]:
    """torchvision's CPU loop, box by box in float32, compared in double."""
    kept: list[int] = []
    for index in sorted(range(len(scores)), key=lambda i: (-scores[i], i)):
        for other in kept:
            a, b = boxes[other], boxes[index]
            width = max(np.float32(0), min(a[2], b[2]) - max(a[0], b[0]))
            height = max(np.float32(0), min(a[3], b[3]) - max(a[1], b[1]))
            areas = [(c[2] - c[0]) * (c[3] - c[1]) for c in (a, b)]
            common = width * height
            union = areas[0] + areas[1] - common
            if union > 0 and float(common / union) > limit:
                break
        else:
            kept.append(index)
    return kept


@settings(deadline=None)
@given(masks())
def test_boxes_and_areas_are_those_of_pycocotools(mask: Mask) -> None:
    encoded = coco.encode(np.asfortranarray(mask))
    x, y, width, height = coco.toBbox(encoded).tolist()

    assert mask_areas(mask) == coco.area(encoded)
    assert masks_to_boxes(mask).tolist() == [x, y, x + width, y + height]


def test_inclusive_boxes_end_at_the_last_pixel_as_in_the_reference() -> None:
    stack = np.stack([picture("....", ".##.", "...."), picture("....", "....", "....")])

    assert masks_to_boxes(stack).tolist() == [[1, 1, 3, 2], [0, 0, 0, 0]]
    assert masks_to_boxes(stack, inclusive=True).tolist() == [[1, 1, 2, 1], [0, 0, 0, 0]]


def test_overlap_of_masks_is_that_of_their_pixels() -> None:
    first = np.stack([discs(seed, size=60) for seed in range(4)])
    second = np.stack([discs(seed, size=60) for seed in range(2, 5)])

    overlap = mask_iou(first, second)

    for i, j in np.ndindex(4, 3):
        expected = (first[i] & second[j]).sum() / (first[i] | second[j]).sum()
        assert overlap[i, j] == pytest.approx(expected)
    assert mask_iou(np.zeros((1, 2, 2), np.bool_), np.zeros((1, 2, 2), np.bool_)).tolist() == [[0]]


def test_stability_is_the_share_of_sure_pixels_among_possible_ones() -> None:
    logits = np.array([[[2.0, 0.5, -0.5, -2.0]], [[-9.0, -9.0, -9.0, -9.0]]])

    assert stability_score(logits, 0.0, 1.0).tolist() == [pytest.approx(1 / 3), 0.0]


@settings(deadline=None)
@given(st.integers(0, 40), st.integers(0, 2**32 - 1), st.sampled_from([0.0, 0.3, 0.5, 0.7, 1.0]))
def test_nms_keeps_what_torchvision_keeps(count: int, seed: int, limit: float) -> None:
    rng = np.random.default_rng(seed)
    corner = rng.integers(0, 12, (count, 2))
    boxes = np.concatenate([corner, corner + rng.integers(0, 12, (count, 2))], axis=1)
    scores = rng.integers(0, 6, count).astype(np.float32)

    kept = nms(boxes.astype(np.float32), scores, limit)

    assert kept.tolist() == slow_nms(boxes.astype(np.float32), scores, limit)


def test_an_overlap_equal_to_the_threshold_is_kept() -> None:
    boxes = np.array([[0, 0, 10, 10], [0, 0, 10, 5]], np.float32)

    assert nms(boxes, np.array([0.9, 0.8], np.float32), 0.5).tolist() == [0, 1]
    assert nms(boxes, np.array([0.8, 0.9], np.float32), 0.49).tolist() == [1]


@settings(deadline=None)
@given(arrays.arrays(np.int64, 30, elements=st.integers(0, 3)))
def test_batched_nms_is_nms_of_each_category_by_itself(categories: NDArray[np.int64]) -> None:
    rng = np.random.default_rng(0)
    corner = rng.random((30, 2)).astype(np.float32)
    boxes, scores = np.concatenate([corner, corner + 1], axis=1), rng.random(30)
    expected = [
        index
        for category in np.unique(categories)
        for chosen in [np.flatnonzero(categories == category)]
        for index in chosen[nms(boxes[chosen], scores[chosen], 0.5)].tolist()
    ]

    kept = batched_nms(boxes, scores, categories, 0.5)

    assert kept.tolist() == sorted(expected, key=lambda index: -scores[index])


def test_bad_arguments_are_named() -> None:
    boxes, scores = np.zeros((2, 4), np.float32), np.zeros(2, np.float32)

    with pytest.raises(OptionError, match="one score for each box"):
        nms(boxes, scores[:1], 0.5)
    with pytest.raises(OptionError, match="one category for each box"):
        batched_nms(boxes, scores, np.zeros(3, np.int64), 0.5)
    with pytest.raises(ImageError, match="these are not masks"):
        mask_areas(np.zeros((2, 2)))  # type: ignore[arg-type]  # that is what is tested
    with pytest.raises(ImageError, match="masks of different sizes"):
        mask_iou(np.zeros((1, 2, 2), np.bool_), np.zeros((1, 2, 3), np.bool_))

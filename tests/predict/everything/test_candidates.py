"""Candidates of automatic masks: upscaled in part, and filtered by stability and crop edges."""

import numpy as np
import pytest

from samgraph.media.image.preprocess import upscale_logits
from samgraph.media.mask import rle
from samgraph.media.mask.geometry import stability_score
from samgraph.predict.everything.candidates import (
    Candidate,
    best_of_crop,
    best_of_crops,
    candidates_of,
    cleaned,
)
from samgraph.predict.everything.grids import Crop
from samgraph.predict.everything.options import EverythingOptions
from samgraph.predict.image.decoding import MaskPredictions


def bumps(count: int, side: int = 64) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    """Smooth logits with a single peak each, as masks have."""
    rng = np.random.default_rng(count)
    y, x = np.mgrid[:side, :side]
    found = []
    for _ in range(count):
        cy, cx, radius = *rng.uniform(0, side, 2), rng.uniform(2, side / 2)
        found.append((radius - np.hypot(y - cy, x - cx)) * rng.uniform(0.2, 2))
    return np.array(found, np.float32)[:, None]


@pytest.mark.parametrize("crop", [Crop(0, 0, 201, 150), Crop(33, 21, 234, 171, 1)])
def test_a_partly_upscaled_mask_is_the_whole_mask(crop: Crop) -> None:
    size_hw = (150, 201) if crop.layer == 0 else (300, 400)
    logits = bumps(12)
    predictions = MaskPredictions(
        logits, np.full((12, 1), 0.9, np.float32), np.ones((12, 1), np.float32)
    )
    options = EverythingOptions(stability_score_thresh=0.3, mask_threshold=0.5)
    points = np.zeros((12, 2), np.float32)

    found = candidates_of(predictions, points, crop, size_hw, options)

    full = upscale_logits(logits[:, 0], crop.size_hw)
    scores = stability_score(full, 0.5, 1.0)
    expected = [i for i in range(12) if scores[i] >= np.float32(0.3)]
    masks = np.zeros((12, *size_hw), np.bool_)
    masks[:, crop.top : crop.bottom, crop.left : crop.right] = full > 0.5
    if crop.layer == 0:
        assert len(found) == len(expected) > 3
    counts = {rle.encode(masks[i])["counts"]: scores[i] for i in expected}
    for segment in found:
        assert segment.stability == pytest.approx(counts[segment.rle["counts"]])
        left, top, width, height = rle.to_bbox(segment.rle)
        assert segment.box_xyxy == (left, top, left + width - 1, top + height - 1)


def test_masks_that_a_crop_cut_are_dropped() -> None:
    crop = Crop(100, 0, 300, 150, 1)
    logits = np.full((1, 1, 64, 64), 5, np.float32)
    predictions = MaskPredictions(logits, np.ones((1, 1), np.float32), np.ones((1, 1), np.float32))
    options, points = EverythingOptions(), np.zeros((1, 2), np.float32)

    assert candidates_of(predictions, points, crop, (150, 400), options) == []
    assert len(candidates_of(predictions, points, Crop(0, 0, 400, 150), (150, 400), options)) == 1


def test_an_empty_mask_is_not_stable() -> None:
    predictions = MaskPredictions(
        np.full((1, 1, 8, 8), -5, np.float32),
        np.ones((1, 1), np.float32),
        np.ones((1, 1), np.float32),
    )
    points, crop = np.zeros((1, 2), np.float32), Crop(0, 0, 20, 20)

    assert candidates_of(predictions, points, crop, (20, 20), EverythingOptions()) == []
    kept = candidates_of(
        predictions, points, crop, (20, 20), EverythingOptions(stability_score_thresh=0.0)
    )
    assert [(segment.stability, rle.area(segment.rle)) for segment in kept] == [(0.0, 0)]


def candidate(mask: np.ndarray[tuple[int, ...], np.dtype[np.bool_]], score: float) -> Candidate:
    height, width = mask.shape
    left, top, w, h = rle.to_bbox(rle.encode(mask))
    box = (left, top, left + max(w - 1, 0), top + max(h - 1, 0))
    return Candidate(rle.encode(mask), box, score, 1.0, (0.0, 0.0), Crop(0, 0, width, height))


@pytest.mark.parametrize("shape", [(1, 1), (1, 9), (9, 1), (6, 7)])
def test_there_is_one_mask_for_each_set_of_pixels(shape: tuple[int, int]) -> None:
    """Boxes of masks one pixel wide have no area, so that comparing boxes never finds them."""
    whole, part = np.ones(shape, np.bool_), np.zeros(shape, np.bool_)
    part[0, 0] = True
    scores = [0.5, 0.9, 0.7, 0.9]

    found = best_of_crop([candidate(mask, s) for s in scores for mask in (whole, part)], 0.7)

    kept = {(segment.rle["counts"], segment.score) for segment in found}
    assert kept == {(rle.encode(mask)["counts"], 0.9) for mask in (whole, part)}
    assert len(found) == len(kept)
    assert len(best_of_crops(found * 3, 0.7)) == len(found)
    assert len(cleaned(found * 3, 1, 0.7)) == len(found)

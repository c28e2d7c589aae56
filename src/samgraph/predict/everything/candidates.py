"""Candidates for automatic masks: filtering by score and stability, and suppression of duplicates.

A mask is upscaled once to the size of its crop, and only the rows and columns that it can cover.
Its stability score is computed there, and a mask that is kept is run-length encoded at once.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from samgraph.media.image.preprocess import upscaled_blocks
from samgraph.media.mask import rle as run_lengths
from samgraph.media.mask.geometry import batched_nms, drop_specks, fill_holes
from samgraph.media.mask.rle import Rle
from samgraph.predict.everything.grids import Crop
from samgraph.predict.everything.options import EverythingOptions
from samgraph.predict.image.decoding import MaskPredictions

Floats = NDArray[np.float32]
Box = tuple[int, int, int, int]

# A mask that ends within this many pixels of a crop's edge, but not of the image's, was cut by it.
EDGE = 20


@dataclass(frozen=True, slots=True)
class Candidate:
    """A mask at the size of the image; its box includes its last pixels."""

    rle: Rle
    box_xyxy: Box
    score: float
    stability: float
    point_xy: tuple[float, float]
    crop: Crop


@dataclass(frozen=True, slots=True)
class _CropMask:
    """A mask in its crop: its stability score, and the block of pixels at `left, top`."""

    stability: float
    pixels: NDArray[np.bool_]
    left: int
    top: int


def candidates_of(
    predictions: MaskPredictions,
    points_xy: Floats,
    crop: Crop,
    size_hw: tuple[int, int],
    options: EverythingOptions,
) -> list[Candidate]:
    """The masks that pass every filter: predictions [N, M], points [N, 2] in pixels of the crop."""
    found = []
    for i, m in zip(*np.nonzero(are_good(predictions.scores, options)), strict=True):
        mask = _upscale(predictions.logits[i, m], crop.size_hw, options)
        if not is_stable(mask.stability, options):
            continue
        box = _box(mask, crop)
        if was_cut(box, crop, size_hw):
            continue
        x, y = points_xy[i] + np.array([crop.left, crop.top], np.float32)
        candidate = Candidate(
            _encode(mask, crop, size_hw),
            box,
            float(predictions.scores[i, m]),
            mask.stability,
            (float(x), float(y)),
            crop,
        )
        found.append(candidate)
    return found


def best_of_crop(candidates: Sequence[Candidate], threshold: float) -> list[Candidate]:
    """Non-maximum suppression by predicted IoU within a crop, best first."""
    return _suppress(candidates, [candidate.score for candidate in candidates], threshold)


def best_of_crops(candidates: Sequence[Candidate], threshold: float) -> list[Candidate]:
    """Non-maximum suppression between crops, where masks of smaller crops are preferred."""
    scores = [1 / candidate.crop.area for candidate in candidates]
    return _suppress(candidates, scores, threshold)


def cleaned(
    candidates: Sequence[Candidate], least_area: float, threshold: float
) -> list[Candidate]:
    """Without holes and islands smaller than `least_area`, then without new duplicates.

    Of duplicates, a mask that was not changed is preferred. Differs from the original: the
    reference has this function and never calls it.
    """
    largest = math.ceil(least_area) - 1
    made, scores = [], []
    for candidate in candidates:
        mask = run_lengths.decode(candidate.rle)
        clean = drop_specks(fill_holes(mask, largest), largest)
        is_same = bool((clean == mask).all())
        scores.append(float(is_same))
        if not is_same:
            code = run_lengths.encode(clean)
            candidate = replace(candidate, rle=code, box_xyxy=_tight_box(code))
        made.append(candidate)
    return _suppress(made, scores, threshold)


def _suppress(
    candidates: Sequence[Candidate], scores: Sequence[float], threshold: float
) -> list[Candidate]:
    """Box NMS, then `distinct`."""
    if not candidates:
        return []
    boxes = np.array([candidate.box_xyxy for candidate in candidates], np.float32)
    categories = np.zeros(len(candidates), np.int64)
    kept = batched_nms(boxes, np.array(scores, np.float32), categories, threshold)
    return distinct([candidates[i] for i in kept])


def distinct(candidates: Sequence[Candidate]) -> list[Candidate]:
    """One mask per set of pixels among boxes without an area, the first; all of the others.

    Differs from the original: there, masks one pixel wide or high are never duplicates, since
    their boxes have no area, and a 1 x 1 image gives a thousand masks.
    """
    best: dict[object, Candidate] = {}
    for i, candidate in enumerate(candidates):
        left, top, right, bottom = candidate.box_xyxy
        has_area = left < right and top < bottom
        best.setdefault(i if has_area else candidate.rle["counts"], candidate)
    return list(best.values())


def is_stable(stability: float, options: EverythingOptions) -> bool:
    """Whether a mask passes by its stability score."""
    least = np.float32(options.least_stability)
    return bool(least <= 0.0 or np.float32(stability) >= least)


def are_good(scores: Floats, options: EverythingOptions) -> NDArray[np.bool_]:
    """Which masks pass by their predicted IoU."""
    if options.least_iou > 0.0:
        return np.asarray(scores > np.float32(options.least_iou))
    return np.ones(scores.shape, np.bool_)


def _upscale(logits: Floats, size_hw: tuple[int, int], options: EverythingOptions) -> _CropMask:
    """Stability and pixels of a mask, a few upscaled rows at a time.

    A mask with no pixels at all scores 0. Differs from the original: that gives NaN.
    """
    middle = np.float32(options.mask_threshold)
    high = np.float32(options.mask_threshold + options.stability_score_offset)
    low = np.float32(options.mask_threshold - options.stability_score_offset)
    core = reach = top = left = 0
    strips: list[NDArray[np.bool_]] = []
    for rows, columns, block in upscaled_blocks(logits, size_hw, float(min(low, middle))):
        if not strips:
            top, left = rows.start, columns.start
        core += int(np.count_nonzero(block > high))
        reach += int(np.count_nonzero(block > low))
        strips.append(block > middle)
    pixels = np.concatenate(strips) if strips else np.zeros((0, 0), np.bool_)
    stability = np.float32(core) / np.float32(max(reach, 1))
    return _CropMask(float(stability), pixels, left, top)


def _box(mask: _CropMask, crop: Crop) -> Box:
    """First and last column and row in the image; the crop's corner for an empty mask."""
    columns, rows = np.flatnonzero(mask.pixels.any(0)), np.flatnonzero(mask.pixels.any(1))
    if not len(rows):
        return crop.left, crop.top, crop.left, crop.top
    x, y = crop.left + mask.left, crop.top + mask.top
    return x + int(columns[0]), y + int(rows[0]), x + int(columns[-1]), y + int(rows[-1])


def _tight_box(code: Rle) -> Box:
    left, top, width, height = run_lengths.to_bbox(code)
    return left, top, left + max(width - 1, 0), top + max(height - 1, 0)


def was_cut(box: Box, crop: Crop, size_hw: tuple[int, int]) -> bool:
    """Whether the mask ends at an edge of the crop that is not an edge of the image."""
    ends = np.array(box, np.float32)
    near_crop = np.abs(ends - np.array(crop.box_xyxy, np.float32)) <= EDGE
    near_image = np.abs(ends - np.array((0, 0, size_hw[1], size_hw[0]), np.float32)) <= EDGE
    return bool((near_crop & ~near_image).any())


def _encode(mask: _CropMask, crop: Crop, size_hw: tuple[int, int]) -> Rle:
    """The mask at the size of the image, run-length encoded."""
    whole = np.zeros(size_hw, np.bool_)
    height, width = mask.pixels.shape
    x, y = crop.left + mask.left, crop.top + mask.top
    whole[y : y + height, x : x + width] = mask.pixels
    return run_lengths.encode(whole)

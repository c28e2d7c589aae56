"""Candidates for automatic masks: which masks are good enough, and which say the same.

A mask is looked at once, at the size of its crop, and only where it may be: its stability is
counted, and what is kept is run-length encoded at once.
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
from samgraph.predict.everything.settings import EverythingSettings
from samgraph.predict.image.decoding import Answers

Floats = NDArray[np.float32]
Box = tuple[int, int, int, int]

# Masks that end within so many pixels of a crop's edge, but not of the image's, were cut by it.
EDGE = 20


@dataclass(frozen=True, slots=True)
class Candidate:
    """A mask of the whole image; the box runs from its first to its last pixel."""

    rle: Rle
    box_xyxy: Box
    score: float
    stability: float
    point_xy: tuple[float, float]
    crop: Crop


@dataclass(frozen=True, slots=True)
class _Look:
    """One mask at the size of its crop: its stability, and its pixels from `left, top` on."""

    stability: float
    pixels: NDArray[np.bool_]
    left: int
    top: int


def candidates_of(
    answers: Answers,
    points_xy: Floats,
    crop: Crop,
    size_hw: tuple[int, int],
    settings: EverythingSettings,
) -> list[Candidate]:
    """The masks of some points that pass every test: answers [N, M], points [N, 2] in the crop."""
    found = []
    for i, place in zip(*np.nonzero(_good(answers.scores, settings)), strict=True):
        look = _look_at(answers.logits[i, place], crop.size_hw, settings)
        if settings.stability_score_thresh > 0.0:
            least = np.float32(settings.stability_score_thresh)
            if not np.float32(look.stability) >= least:
                continue
        box = _box(look, crop)
        if _was_cut(box, crop, size_hw):
            continue
        x, y = points_xy[i] + np.array([crop.left, crop.top], np.float32)
        candidate = Candidate(
            _encode(look, crop, size_hw),
            box,
            float(answers.scores[i, place]),
            look.stability,
            (float(x), float(y)),
            crop,
        )
        found.append(candidate)
    return found


def best_of_crop(candidates: Sequence[Candidate], threshold: float) -> list[Candidate]:
    """Without those whose box a better one covers, best first."""
    return _without_rivals(candidates, [one.score for one in candidates], threshold)


def best_of_crops(candidates: Sequence[Candidate], threshold: float) -> list[Candidate]:
    """The same between crops, where what was seen in a smaller crop is better."""
    return _without_rivals(candidates, [1 / one.crop.area for one in candidates], threshold)


def cleaned(
    candidates: Sequence[Candidate], least_area: float, threshold: float
) -> list[Candidate]:
    """Without holes and loose pieces smaller than `least_area`, then without new duplicates.

    Of duplicates, one that needed no cleaning stays. Differs from the original: the reference has
    this function and never calls it.
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
    return _without_rivals(made, scores, threshold)


def _without_rivals(
    candidates: Sequence[Candidate], scores: Sequence[float], threshold: float
) -> list[Candidate]:
    if not candidates:
        return []
    boxes = np.array([one.box_xyxy for one in candidates], np.float32)
    categories = np.zeros(len(candidates), np.int64)
    kept = batched_nms(boxes, np.array(scores, np.float32), categories, threshold)
    return [candidates[i] for i in kept]


def _good(scores: Floats, settings: EverythingSettings) -> NDArray[np.bool_]:
    if settings.pred_iou_thresh > 0.0:
        return np.asarray(scores > np.float32(settings.pred_iou_thresh))
    return np.ones(scores.shape, np.bool_)


def _look_at(logits: Floats, size_hw: tuple[int, int], settings: EverythingSettings) -> _Look:
    """Stability and pixels of a mask, a few upscaled rows at a time.

    A mask with no pixels at all scores 0. Differs from the original: that gives NaN.
    """
    middle = np.float32(settings.mask_threshold)
    high = np.float32(settings.mask_threshold + settings.stability_score_offset)
    low = np.float32(settings.mask_threshold - settings.stability_score_offset)
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
    return _Look(float(stability), pixels, left, top)


def _box(look: _Look, crop: Crop) -> Box:
    """The first and last column and row, in the image; of an empty mask, the crop's corner."""
    columns, rows = np.flatnonzero(look.pixels.any(0)), np.flatnonzero(look.pixels.any(1))
    if not len(rows):
        return crop.left, crop.top, crop.left, crop.top
    x, y = crop.left + look.left, crop.top + look.top
    return x + int(columns[0]), y + int(rows[0]), x + int(columns[-1]), y + int(rows[-1])


def _tight_box(code: Rle) -> Box:
    left, top, width, height = run_lengths.to_bbox(code)
    return left, top, left + max(width - 1, 0), top + max(height - 1, 0)


def _was_cut(box: Box, crop: Crop, size_hw: tuple[int, int]) -> bool:
    """Whether the mask ends at an edge of the crop that is not one of the image."""
    ends = np.array(box, np.float32)
    near_crop = np.abs(ends - np.array(crop.box_xyxy, np.float32)) <= EDGE
    near_image = np.abs(ends - np.array((0, 0, size_hw[1], size_hw[0]), np.float32)) <= EDGE
    return bool((near_crop & ~near_image).any())


def _encode(look: _Look, crop: Crop, size_hw: tuple[int, int]) -> Rle:
    """The mask in the whole image."""
    mask = np.zeros(size_hw, np.bool_)
    height, width = look.pixels.shape
    x, y = crop.left + look.left, crop.top + look.top
    mask[y : y + height, x : x + width] = look.pixels
    return run_lengths.encode(mask)

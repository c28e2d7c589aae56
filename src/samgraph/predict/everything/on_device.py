"""Automatic masks where the engine computes: only what is kept is downloaded.

Points run in large batches. Of each mask the scores come to the host, then how large it is at the
size of the crop and its box; the others are forgotten. After non-maximum suppression, the places
where the masks that are left begin and end are downloaded, and run-length encoded.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from samgraph.engines import Buffer
from samgraph.engines.buffers import DeviceImages
from samgraph.media.mask import rle as run_lengths
from samgraph.media.mask.geometry import batched_nms
from samgraph.predict.everything import candidates as filtering
from samgraph.predict.everything.candidates import Box, Candidate
from samgraph.predict.everything.grids import Crop
from samgraph.predict.everything.options import EverythingOptions
from samgraph.predict.image import decoding
from samgraph.predict.image.encoded import EncodedImage
from samgraph.predict.prompts import scale_points
from samgraph.progress import Progress

Floats = NDArray[np.float32]
# Points per batch: their masks take 134 MB at 1024 pixels.
BATCH = 128


@dataclass(frozen=True, slots=True)
class _Passed:
    """Masks that passed the filters: low-resolution logits [K, L, L] and what is known of each."""

    logits: Buffer
    boxes: list[Box]
    scores: list[float]
    stability: list[float]
    points: list[tuple[float, float]]


def search_crop(
    images: DeviceImages,
    image: EncodedImage,
    crop: Crop,
    size_hw: tuple[int, int],
    options: EverythingOptions,
    progress: Progress,
) -> list[Candidate]:
    """The masks kept from the points of a crop, best first, without duplicates."""
    height, width = crop.size_hw
    points = (options.grids[crop.layer] * np.array([width, height])).astype(np.float32)
    parts = []
    for start in range(0, len(points), BATCH):
        some = points[start : start + BATCH]
        passed = _passed(images, image, some, crop, size_hw, options)
        if passed.boxes:
            parts.append(passed)
        progress.advance(len(some))
    return _best(images, image, parts, crop, size_hw, options) if parts else []


def _passed(
    images: DeviceImages,
    image: EncodedImage,
    points_xy: Floats,
    crop: Crop,
    size_hw: tuple[int, int],
    options: EverythingOptions,
) -> _Passed:
    """The masks of some points that pass every filter."""
    core = image.core
    points = scale_points(points_xy, image.size_hw, core.config.image_size)[:, None]
    labels = np.ones((len(points), 1), np.int64)
    found = core.decode_points(image.prepared, points, labels)
    ious, stability = map(core.buffers.download, (found.ious, found.stability))
    columns = np.tile(np.arange(1, ious.shape[1]), (len(ious), 1))
    if not options.multimask:
        falls_back = image.falls_back
        columns = decoding.single_index(ious, stability, falls_back=falls_back)[:, None]
    scores = np.take_along_axis(ious, columns, axis=1)
    good = filtering.are_good(scores, options)
    rows = np.nonzero(good)[0]
    numbers = (np.arange(len(ious))[:, None] * ious.shape[1] + columns)[good]
    if not len(numbers):
        return _Passed(found.masks[0, :0], [], [], [], [])
    logits = images.pick(found.masks, numbers)
    middle, offset = options.mask_threshold, options.stability_score_offset
    measured = images.measure(logits, crop.size_hw, (middle - offset, middle, middle + offset))
    steady = measured.core.astype(np.float32) / np.maximum(measured.reach, 1).astype(np.float32)
    corner = np.array([crop.left, crop.top] * 2)
    boxes = np.maximum(measured.boxes, 0) + corner  # the crop's corner for an empty mask
    least = np.float32(options.stability_score_thresh)
    kept = np.flatnonzero(((steady >= least) | (least <= 0)) & ~_were_cut(boxes, crop, size_hw))
    xy = (points_xy[rows] + corner[:2].astype(np.float32))[kept]
    return _Passed(
        images.pick(logits[None], kept),
        list(map(tuple, boxes[kept].tolist())),
        scores[good][kept].tolist(),
        steady[kept].tolist(),
        list(map(tuple, xy.tolist())),
    )


def _were_cut(boxes: NDArray[np.int64], crop: Crop, size_hw: tuple[int, int]) -> NDArray[np.bool_]:
    """Which masks end at an edge of the crop that is not an edge of the image, [K]."""
    image = np.array((0, 0, size_hw[1], size_hw[0]))
    near_crop = np.abs(boxes - np.array(crop.box_xyxy)) <= filtering.EDGE
    near_image = np.abs(boxes - image) <= filtering.EDGE
    return np.asarray((near_crop & ~near_image).any(1))


def _best(
    images: DeviceImages,
    image: EncodedImage,
    parts: list[_Passed],
    crop: Crop,
    size_hw: tuple[int, int],
    options: EverythingOptions,
) -> list[Candidate]:
    """Non-maximum suppression by predicted IoU, best first; then the masks themselves."""
    boxes = [box for part in parts for box in part.boxes]
    scores = [score for part in parts for score in part.scores]
    stability = [value for part in parts for value in part.stability]
    points = [point for part in parts for point in part.points]
    categories = np.zeros(len(boxes), np.int64)
    found = np.array(boxes, np.float32)
    kept = batched_nms(found, np.array(scores, np.float32), categories, options.box_nms_thresh)
    joined = image.core.buffers.concat([part.logits for part in parts])
    logits = images.pick(joined[None], kept)
    changes = images.changes(logits, crop.size_hw, options.mask_threshold)
    stride = crop.size_hw[0] + 1
    return [
        Candidate(
            run_lengths.encode_changes(runs, stride, crop.top, crop.left, size_hw),
            boxes[index],
            scores[index],
            stability[index],
            points[index],
            crop,
        )
        for index, runs in zip(kept.tolist(), changes, strict=True)
    ]

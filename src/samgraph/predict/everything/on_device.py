"""Automatic masks where the engine computes: only what is kept is downloaded.

Points run in large batches. Masks are filtered by score, stability and box on the device; the host
learns which of a batch passed while the next batch runs. Non-maximum suppression runs there too.
Then the positions where the masks that are left begin and end are downloaded, and encoded.
"""

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from samgraph.engines.buffers import DeviceImages, MaskFilter, PassedMasks
from samgraph.errors import DeviceMemoryError, SamgraphWarning
from samgraph.media.mask import rle as run_lengths
from samgraph.predict.everything import candidates as filtering
from samgraph.predict.everything.candidates import Candidate
from samgraph.predict.everything.grids import Crop
from samgraph.predict.everything.options import EverythingOptions
from samgraph.predict.image import decoding
from samgraph.predict.image.encoded import EncodedImage
from samgraph.predict.prompts import scale_points
from samgraph.progress import Progress

Floats = NDArray[np.float32]
# Points per batch: their masks take 134 MB at 1024 pixels.
BATCH = 128


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
    rule = mask_filter(crop, size_hw, options, falls_back=image.falls_back)
    found = [
        (passed, points[start + passed.prompts])
        for start, passed in _batches(images, image, points, rule, progress)
        if len(passed.prompts)
    ]
    if not found:
        return []
    best = images.best([passed for passed, _ in found], options.box_nms_thresh)
    corner = np.array([crop.left, crop.top], np.float32)
    clicked = np.concatenate([some for _, some in found])[best.numbers] + corner
    changes = images.changes(best.logits, crop.size_hw, options.mask_threshold)
    columns = (best.boxes, best.scores, best.stability, clicked)
    rows = zip(changes, *(column.tolist() for column in columns), strict=True)
    made = [
        Candidate(
            run_lengths.encode_changes(runs, crop.size_hw[0] + 1, crop.top, crop.left, size_hw),
            tuple(box),
            score,
            steady,
            tuple(point),
            crop,
        )
        for runs, box, score, steady, point in rows
    ]
    return filtering.distinct(made)


def mask_filter(
    crop: Crop, size_hw: tuple[int, int], options: EverythingOptions, *, falls_back: bool
) -> MaskFilter:
    """The filters of the options, as numbers that a device compares with."""
    middle, offset = options.mask_threshold, options.stability_score_offset
    return MaskFilter(
        crop.box_xyxy,
        size_hw,
        filtering.EDGE,
        (middle - offset, middle, middle + offset),
        float(np.float32(options.least_iou)),
        float(np.float32(options.least_stability)),
        options.multimask,
        float(np.float32(decoding.STABILITY_WANTED)) if falls_back else None,
    )


def _batches(
    images: DeviceImages,
    image: EncodedImage,
    points_xy: Floats,
    rule: MaskFilter,
    progress: Progress,
) -> Iterator[tuple[int, PassedMasks]]:
    """Where each batch of points starts, and its masks that pass; the next runs meanwhile."""
    limits, running, start = image.core.session.batch_limits, None, 0
    while start < len(points_xy):
        some = points_xy[start : start + limits.get("everything", BATCH)]
        begun, full = None, None
        try:
            begun = _screened(images, image, some, rule)
        except DeviceMemoryError as error:
            full = error
        if full is not None and image.core.buffers.images is not images:
            raise full  # the model is on the CPU now
        if full is not None and running is None:
            _take_less(full, len(some), limits)
        if running is not None:
            yield running[0], images.passed(running[1])
        running = None if begun is None else (start, begun)
        if begun is not None:
            start += len(some)
            progress.advance(len(some))
    if running is not None:
        yield running[0], images.passed(running[1])


def _screened(
    images: DeviceImages, image: EncodedImage, points_xy: Floats, rule: MaskFilter
) -> Any:
    """A batch of points, decoded; its masks are being filtered."""
    points = scale_points(points_xy, image.size_hw, image.core.config.image_size)[:, None]
    labels = np.ones((len(points), 1), np.int64)
    found = image.core.decode_points(image.prepared, points, labels)
    if image.core.buffers.images is not images:
        raise DeviceMemoryError("the model has left the device")
    return images.screen(found.masks, found.ious, found.stability, rule)


def _take_less(full: DeviceMemoryError, count: int, limits: dict[str, int]) -> None:
    """Halve the batches of points from now on; raises `full` where there is one point in each."""
    if count == 1:
        raise full
    limits["everything"] = count // 2
    warnings.warn(
        f"{full.what} with {count} points at once: from now on there are {count // 2}; free memory "
        "on the device and load the model again to undo that",
        SamgraphWarning,
        stacklevel=2,
    )

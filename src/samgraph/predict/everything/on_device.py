"""Automatic masks where the engine computes: only what is kept is downloaded.

Points run in large batches. Masks are filtered by score, stability and box on the device; the host
learns which of a batch passed while the next batch runs. Non-maximum suppression runs there too.
Then the positions where the masks that are left begin and end are downloaded, and encoded.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from samgraph.engines.buffers import DeviceImages, MaskFilter, PassedMasks
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
        float(np.float32(options.pred_iou_thresh)),
        float(np.float32(options.stability_score_thresh)),
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
    core, running = image.core, None
    for start in range(0, len(points_xy), BATCH):
        some = points_xy[start : start + BATCH]
        points = scale_points(some, image.size_hw, core.config.image_size)[:, None]
        found = core.decode_points(image.prepared, points, np.ones((len(some), 1), np.int64))
        before, running = running, images.screen(found.masks, found.ious, found.stability, rule)
        if before is not None:
            yield start - BATCH, images.passed(before)
        progress.advance(len(some))
    if running is not None:
        yield start, images.passed(running)

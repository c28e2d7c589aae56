"""One frame of tracking with a policy that observes: it may choose among the decoder's masks.

As `step.step`, with the choice between decoding and remembering. What is measured is downloaded:
the scores of each object, and for a policy that compares masks the masks themselves, at their low
resolution (M * 256 KB per object at 1024 pixels).

Shapes: N objects, M masks, L mask size, C channels.
"""

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from samgraph.errors import OptionError
from samgraph.media.mask.geometry import mask_areas, masks_to_boxes
from samgraph.models.family import (
    Alternatives,
    Features,
    OffersAlternatives,
    SegmentationModel,
    TrackedObjects,
)
from samgraph.predict.video.bank import Memory, MemoryPool, Recalled
from samgraph.predict.video.policies.history import Candidates
from samgraph.predict.video.step import Outcome, alike, attend, outcomes_of

# Which mask is taken of the object at a place in the list.
Choice: TypeAlias = Callable[[int, Candidates], int]


def step_observed(
    model: SegmentationModel,
    features: Features,
    pool: MemoryPool,
    recalled: Sequence[Recalled],
    at_once: int,
    choose: Choice,
    *,
    compares_masks: bool,
) -> list[tuple[Outcome, Memory]]:
    """Every object on the next frame, and what was remembered of it."""
    found: list[tuple[Outcome, Memory] | None] = [None] * len(recalled)
    for group in alike([one.lengths for one in recalled], at_once):
        read = pool.read([recalled[i] for i in group])
        seen = attend(model, features, read)
        if compares_masks:
            decoded = _chosen(model, _alternatives(model, seen, len(group)), group, choose)
        else:
            decoded = model.decode_tracked(seen, len(group))
            for i, candidates in zip(group, _scores(model, decoded), strict=True):
                choose(i, candidates)
        masks = model.encode_memory(
            features, decoded.best_mask, decoded.object_score, is_prompted=False
        )
        memories = pool.store(masks, decoded.pointer)
        for i, outcome, memory in zip(group, outcomes_of(decoded), memories, strict=True):
            found[i] = outcome, memory
    return [one for one in found if one is not None]


def _alternatives(model: SegmentationModel, seen: Features, count: int) -> Alternatives:
    if not isinstance(model, OffersAlternatives):
        raise OptionError(f"a model of the family {model.family} offers one mask per object")
    return model.decode_alternatives(seen, count)


def _scores(model: SegmentationModel, decoded: TrackedObjects) -> list[Candidates]:
    """The one candidate of each object: scores alone."""
    download = model.buffers.download
    scores, ious = download(decoded.object_score), download(decoded.best_iou)
    boxes, areas = np.zeros((1, 4), np.float32), np.zeros(1, np.float32)
    none = np.zeros((0, 0, 0), np.bool_)
    return [
        Candidates(float(score[0]), np.asarray(iou, np.float32), boxes, areas, none)
        for score, iou in zip(scores, ious, strict=True)
    ]


def _chosen(
    model: SegmentationModel, offered: Alternatives, group: Sequence[int], choose: Choice
) -> TrackedObjects:
    """The masks that are chosen, with their scores and pointers."""
    buffers = model.buffers
    masks = np.asarray(buffers.download(offered.masks) > 0)
    scores, ious = buffers.download(offered.object_score), buffers.download(offered.ious)
    boxes = masks_to_boxes(masks).astype(np.float32)
    areas = mask_areas(masks).astype(np.float32)
    picked = [
        choose(i, Candidates(float(scores[row, 0]), ious[row], boxes[row], areas[row], masks[row]))
        for row, i in enumerate(group)
    ]
    rows = [(row, slice(k, k + 1)) for row, k in enumerate(picked)]
    return TrackedObjects(
        buffers.concat([offered.masks[row : row + 1, k] for row, k in rows]),
        offered.object_score,
        buffers.concat([offered.ious[row : row + 1, k] for row, k in rows]),
        buffers.concat([offered.pointers[row, k] for row, k in rows]),
    )

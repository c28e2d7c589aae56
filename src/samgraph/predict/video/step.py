"""One frame of tracking: what the model does for all objects of a frame.

    encode     the frame, once for all objects
    attend     what each object remembers, onto the frame; objects with equal memory in one go
    decode     masks and scores, all objects in one go
    remember   the frame and each mask, written into the memory bank

Functions without state: which memories are read is decided by the policy, and what is kept by
whoever calls. Everything stays where the engine computes.

Shapes: N objects, C channels, S image size, L mask size, P points, T memory tokens.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from samgraph.engines import Buffer
from samgraph.media.mask.components import fill_holes
from samgraph.models.family import (
    BankRead,
    DecodedObjects,
    DecoderPrompts,
    Features,
    TrackedObjects,
    no_prompts,
)
from samgraph.models.family import SegmentationModel as Model
from samgraph.predict.prompts import Floats
from samgraph.predict.video.bank import Memory, MemoryPool, Recalled

# Logits that are given back to the decoder as a mask prompt.
CLAMP = 32.0
# What a hole is filled with: just inside the mask.
FILLED_LOGIT = 0.1
MASK_SCORE = 10.0
_LENGTHS = attrgetter("lengths")


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """What was found of one object on one frame, as buffers.

    `logits` [L, L], -1024 all over where the object is occluded or absent, which a `score` [1] of 0
    or less says. `iou` [1] is the model's estimate of the mask's quality, `pointer` [C] what later
    frames remember of the object.
    """

    logits: Buffer
    score: Buffer
    iou: Buffer
    pointer: Buffer


@dataclass(frozen=True, slots=True)
class Clicks:
    """Points on the model's input: xy [P, 2] in its pixels, labels [P]; a box is two points."""

    xy: Floats
    labels: NDArray[np.int64]

    def and_also(self, more: "Clicks") -> "Clicks":
        """These, then those."""
        return Clicks(
            np.concatenate([self.xy, more.xy]), np.concatenate([self.labels, more.labels])
        )


def step(
    model: Model,
    features: Features,
    pool: MemoryPool,
    recalled: Sequence[Recalled],
    at_once: int,
) -> list[tuple[Outcome, Memory]]:
    """Every object on the next frame, and what was remembered of it; `at_once` in one run."""
    found: list[tuple[Outcome, Memory] | None] = [None] * len(recalled)
    for group in alike(list(map(_LENGTHS, recalled)), at_once):
        read = pool.read(list(map(recalled.__getitem__, group)))
        decoded, masks = track_objects(model, features, read)
        memories = pool.store(masks, decoded.pointer)
        for i, outcome, memory in zip(group, outcomes_of(decoded), memories, strict=True):
            found[i] = outcome, memory
    return list(filter(None, found))


def track_objects(
    model: Model, features: Features, read: BankRead
) -> tuple[TrackedObjects, Buffer]:
    """Objects whose memories have equal lengths: what was found, and mask memories [N, T, C]."""
    decoded = model.decode_tracked(attend(model, features, read), len(read.frames))
    masks = model.encode_memory(
        features, decoded.best_mask, decoded.object_score, is_prompted=False
    )
    return decoded, masks


def attend(model: Model, features: Features, read: BankRead) -> Features:
    """The frame conditioned on each object's memory, as many objects at once as pay."""
    count, frames = read.frames.shape
    limit = model.session.attention_tokens
    most = count if limit is None else max(1, limit // max(frames * model.memory_layout.tokens, 1))
    if most >= count:
        return model.attend(features, read)
    parts = [model.attend(features, read.part(i, i + most)) for i in range(0, count, most)]
    maps = {
        name: model.buffers.concat([part.maps[name] for part in parts])
        if parts[0].maps[name] is not features.maps[name]
        else buffer
        for name, buffer in features.maps.items()
    }
    return replace(parts[0], maps=maps)


def click(
    model: Model,
    features: Features,
    clicks: Clicks,
    read: BankRead | None = None,
    previous: Buffer | None = None,
    *,
    falls_back: bool = True,
) -> Outcome:
    """One object from clicks or a box.

    Without `read` the frame stands alone, as an image does. `previous` [L, L] are the logits the
    clicks are to improve. `falls_back` says whether an unstable answer to several clicks gives way
    to another mask.
    """
    seen = features if read is None else attend(model, features, read)
    mask = None if previous is None else model.buffers.clip(previous, CLAMP)[None, None]
    prompts = DecoderPrompts(
        clicks.xy[None], clicks.labels[None], np.array([len(clicks.labels) <= 1]), mask
    )
    decoded = model.decode(seen, prompts)
    (outcome,) = outcomes_of(decoded)
    if falls_back or prompts.multimask[0]:
        return outcome
    is_there = model.buffers.download(outcome.score)[0] > 0
    logits = decoded.masks[0, 0] if is_there else outcome.logits
    return replace(outcome, logits=logits, iou=decoded.ious[0, :1])


def paint(model: Model, features: Features, mask: NDArray[np.bool_]) -> Outcome:
    """One object from a mask [S, S], which is the answer; only its pointer is computed."""
    logits, prompt = model.mask_prompt(mask[None, None].astype(np.float32))
    prompts = replace(no_prompts(1), multimask=np.array([False]), mask=prompt)
    raw = replace(features, is_conditioned=True)  # the original adds no `no_mem_embed` here
    found = outcomes_of(model.decode(raw, prompts))[0]
    is_there, upload = bool(mask.any()), model.buffers.upload
    return Outcome(
        logits[0, 0],
        upload(np.array([MASK_SCORE if is_there else -MASK_SCORE], np.float32)),
        upload(np.array([1.0], np.float32)),
        found.pointer if is_there else upload(model.absent_pointer[0]),
    )


def remember_prompted(
    model: Model, features: Features, outcomes: Sequence[Outcome], *, is_prompted: bool = True
) -> Buffer:
    """The mask memory of prompted objects on their frame: [N, T, channels]."""
    concat = model.buffers.concat
    return model.encode_memory(
        features,
        concat([outcome.logits[None, None] for outcome in outcomes]),
        concat([outcome.score[None] for outcome in outcomes]),
        is_prompted=is_prompted,
    )


def without_holes(logits: Floats, largest: int) -> Floats:
    """Low-resolution logits [..., L, L] on the host, with holes of up to so many pixels filled."""
    if not largest:
        return logits
    filled = np.array(logits)
    for mask in filled.reshape(-1, *logits.shape[-2:]):
        inside = mask > 0
        if inside.any():
            mask[fill_holes(inside, largest) & ~inside] = np.float32(FILLED_LOGIT)
    return filled


def outcomes_of(decoded: DecodedObjects | TrackedObjects) -> list[Outcome]:
    """What was found, object by object; views."""
    columns: Any = (
        decoded.best_mask[:, 0],
        decoded.object_score,
        decoded.best_iou,
        decoded.pointer,
    )
    return list(map(Outcome, *columns))


def alike(lengths: Sequence[tuple[int, int]], most: int) -> Iterator[list[int]]:
    """Groups of objects whose memories have equal lengths, at most so many in each."""
    groups: dict[tuple[int, int], list[int]] = {}
    for index, own in enumerate(lengths):
        groups.setdefault(own, []).append(index)
    for indices in groups.values():
        for start in range(0, len(indices), most):
            yield indices[start : start + most]

"""One frame of tracking, the same for videos and streams.

    encode     the frame, once for all objects
    attend     what each object remembers, onto the frame; objects with equal memory in one go
    decode     masks and scores, all objects in one go
    remember   the frame and each mask, as memory for later frames

Nothing here knows of time: which memories are read is decided by the bank, and what is kept by
whoever calls.

Shapes: N objects, C channels, E grid, S image size, L mask size, P points, T cells of the grid.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from samgraph.errors import OptionError
from samgraph.media.mask.components import fill_holes
from samgraph.models.sam2.model import Sam2Model
from samgraph.predict.features import repeated
from samgraph.predict.video.memory_bank import (
    Floats,
    Memory,
    MemoryPrecision,
    Recalled,
    Stored,
    checked_precision,
)

# Logits that are given back to the decoder as a mask prompt.
CLAMP = 32.0
# What a hole is filled with: just inside the mask.
FILLED_LOGIT = 0.1
MASK_SCORE = 10.0
NO_POINT = -1
# More objects at once are no faster on a CPU, and take 60 MB each at 1024 pixels.
OBJECTS_AT_ONCE = 4
# Attention over so many cells of memory fills a processor: what one object remembers at 1024
# pixels. There, four objects in one run take a sixth longer than one after another.
CELLS_AT_ONCE = 1 << 15


@dataclass(frozen=True, slots=True)
class Features:
    """An encoded frame: what every object on it is found with."""

    embedding: Floats  # [1, C, E, E]
    fine_0: Floats  # [1, C/8, L, L]
    fine_1: Floats  # [1, C/4, L/2, L/2]

    @property
    def bytes(self) -> int:
        """How much memory it takes."""
        return self.embedding.nbytes + self.fine_0.nbytes + self.fine_1.nbytes


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was found of one object on one frame.

    `low` [L, L] are logits, -1024 all over where the object is hidden, which a `score` of 0 or
    less says. `iou` is the model's estimate of the mask's quality, `pointer` [C] what later
    frames remember of the object.
    """

    low: Floats
    score: float
    iou: float
    pointer: Floats


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


class Tracker:
    """The model as tracking uses it. Holds no state: one serves any number of videos.

    Args:
        core: The model.
        memory_precision: How mask memory is stored; "bf16" is what the reference does.
        fill_holes: The largest hole, in low-resolution pixels, to fill in what is shown.
        falls_back: Whether an unstable answer to several clicks gives way to another mask.
        objects_at_once: The most objects in one run of a graph.
    """

    def __init__(
        self,
        core: Sam2Model,
        *,
        memory_precision: MemoryPrecision = "bf16",
        fill_holes: int = 0,
        falls_back: bool = True,
        objects_at_once: int = OBJECTS_AT_ONCE,
    ) -> None:
        if objects_at_once < 1:
            raise OptionError("at least one object is run at once", got=objects_at_once)
        if fill_holes < 0:
            raise OptionError("a hole has no negative area", got=f"fill_holes={fill_holes}")
        self.core, self.config = core, core.config
        self.memory_precision: MemoryPrecision = memory_precision
        self._stored = checked_precision(memory_precision)
        self._fill_holes, self._falls_back = fill_holes, falls_back
        self._at_once = objects_at_once

    @property
    def settings(self) -> dict[str, Any]:
        """What this tracker was told, by the names of its arguments."""
        return {
            "memory_precision": self.memory_precision,
            "fill_holes": self._fill_holes,
            "objects_at_once": self._at_once,
        }

    def encode(self, pixels: Floats) -> Features:
        """A frame as `resize_video_frame` gives it, [3, S, S]."""
        found = self.core.run("image_encoder", image=pixels[None])
        return Features(found["embedding"], found["fine_0"], found["fine_1"])

    def track(
        self, features: Features, recalled: Sequence[Recalled]
    ) -> list[tuple[Outcome, Memory]]:
        """Every object on the next frame, and what to remember of it.

        Memory is made of the mask as decoded; holes are filled in what is shown.
        """
        found: list[tuple[Outcome, Memory] | None] = [None] * len(recalled)
        for places in _alike(recalled, self._at_once):
            embedding = self._attend(features, [recalled[i] for i in places])
            outcomes = self._decode(features, embedding, _unprompted(len(places)))
            masks = self.remember(features, outcomes, is_prompted=False)
            for place, outcome, mask in zip(places, outcomes, masks, strict=True):
                found[place] = self._filled(outcome), Memory(mask, outcome.pointer)
        return [pair for pair in found if pair is not None]

    def click(
        self,
        features: Features,
        clicks: Clicks,
        recalled: Recalled | None = None,
        previous: Floats | None = None,
    ) -> Outcome:
        """One object from clicks or a box.

        Without `recalled` the frame stands alone, as an image does. `previous` are the logits the
        clicks are to improve.
        """
        embedding = features.embedding if recalled is None else self._attend(features, [recalled])
        prompts = _unprompted(1) | {
            "points": clicks.xy[None],
            "labels": clicks.labels[None],
            "multimask": np.array([len(clicks.labels) <= 1]),
            "no_memory": np.array([recalled is None]),
        }
        mask = None if previous is None else np.clip(previous, -CLAMP, CLAMP)
        return self._filled(self._decode(features, embedding, prompts, mask)[0])

    def paint(self, features: Features, mask: NDArray[np.bool_]) -> Outcome:
        """One object from a mask [S, S], which is the answer; only its pointer is computed."""
        given = self.core.run("mask_prompt", mask=mask[None, None].astype(np.float32))
        prompts = _unprompted(1) | {"multimask": np.array([False])}
        found = self._decode(features, features.embedding, prompts, given["prompt"][0, 0])[0]
        is_there = bool(mask.any())
        outcome = Outcome(
            given["logits"][0, 0],
            MASK_SCORE if is_there else -MASK_SCORE,
            1.0,
            found.pointer if is_there else self.core.hidden_pointer[0],
        )
        return self._filled(outcome)

    def remember(
        self, features: Features, outcomes: Sequence[Outcome], *, is_prompted: bool
    ) -> list[Stored]:
        """The mask memory of each outcome on its frame: [T, 64] as it is stored.

        Masks of prompted frames are hardened first: what the user sees is what is remembered.
        """
        found = self.core.run(
            "memory_encoder",
            embedding=features.embedding,
            mask=np.stack([outcome.low for outcome in outcomes])[:, None],
            object_score=np.array([[outcome.score] for outcome in outcomes], np.float32),
            binary=np.full(len(outcomes), is_prompted),
        )["memory"]
        return [mask.astype(self._stored) for mask in found]

    def _attend(self, features: Features, recalled: Sequence[Recalled]) -> Floats:
        """The frame as each object remembers it: [N, C, E, E]. All have equal lengths."""
        cells = sum(len(mask) for mask in recalled[0].masks)
        most = max(1, CELLS_AT_ONCE // max(cells, 1))
        found = [
            self._attend_at_once(features, recalled[start : start + most])
            for start in range(0, len(recalled), most)
        ]
        return found[0] if len(found) == 1 else np.concatenate(found)

    def _attend_at_once(self, features: Features, recalled: Sequence[Recalled]) -> Floats:
        """The same in one run."""
        first = recalled[0]
        masks = np.empty((len(recalled), len(first.masks), *first.masks[0].shape), np.float32)
        pointers = np.empty((len(recalled), len(first.pointers), self.config.channels), np.float32)
        for i, one in enumerate(recalled):
            for j, mask in enumerate(one.masks):
                masks[i, j] = mask
            for j, pointer in enumerate(one.pointers):
                pointers[i, j] = pointer
        times = np.array([one.times for one in recalled], np.float32)
        found = self.core.run(
            "memory_attention",
            embedding=features.embedding,
            memory=masks,
            slots=np.array([one.slots for one in recalled], np.int64),
            pointers=pointers,
            pointer_times=times.reshape(len(recalled), -1),
        )
        return found["embedding"]

    def _decode(
        self,
        features: Features,
        embedding: Floats,
        prompts: dict[str, NDArray[Any]],
        mask: Floats | None = None,
    ) -> list[Outcome]:
        """Outcomes of prompts on embeddings [N, C, E, E]; `mask` [L, L] goes with one prompt."""
        count, side = len(embedding), self.config.mask_size
        given = np.zeros((count, 1, side, side), np.float32) if mask is None else mask[None, None]
        found = self.core.run(
            "decode",
            embedding=embedding,
            fine_0=repeated(features.fine_0, count),
            fine_1=repeated(features.fine_1, count),
            mask=given,
            has_mask=np.full(count, mask is not None),
            **prompts,
        )
        if not self._falls_back:
            _take_first(found, ~prompts["multimask"])
        return [
            Outcome(
                found["best_mask"][i, 0],
                float(found["object_score"][i, 0]),
                float(found["best_iou"][i, 0]),
                found["pointer"][i],
            )
            for i in range(count)
        ]

    def _filled(self, outcome: Outcome) -> Outcome:
        """The outcome with small holes filled, if that was asked for."""
        inside = outcome.low > 0
        if not self._fill_holes or not inside.any():
            return outcome
        holes = fill_holes(inside, self._fill_holes) & ~inside
        return replace(outcome, low=np.where(holes, np.float32(FILLED_LOGIT), outcome.low))


def _unprompted(count: int) -> dict[str, NDArray[Any]]:
    """What the decoder is given for objects that are tracked: no point at all."""
    return {
        "points": np.zeros((count, 1, 2), np.float32),
        "labels": np.full((count, 1), NO_POINT, np.int64),
        "multimask": np.ones(count, np.bool_),
        "no_memory": np.zeros(count, np.bool_),
    }


def _take_first(found: dict[str, NDArray[Any]], single: NDArray[np.bool_]) -> None:
    """Make mask 0 the answer where a single mask was asked for, stable or not."""
    for i in np.flatnonzero(single):
        if found["object_score"][i, 0] > 0:
            found["best_mask"][i] = found["masks"][i, :1]
        found["best_iou"][i] = found["ious"][i, :1]


def _alike(recalled: Sequence[Recalled], most: int) -> Iterator[list[int]]:
    """Places of objects whose memories have equal lengths, at most so many at once."""
    groups: dict[tuple[int, int], list[int]] = {}
    for place, one in enumerate(recalled):
        groups.setdefault(one.lengths, []).append(place)
    for places in groups.values():
        for start in range(0, len(places), most):
            yield places[start : start + most]

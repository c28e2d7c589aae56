"""What tracking measured of an object, frame by frame: the evidence of observing policies.

An observation is a few numbers on the host. A video keeps one per tracked frame (about 0.3 KB), a
stream those of frames it still remembers and of the last few.

Shapes: M masks offered by the decoder.
"""

from bisect import bisect_left, insort
from collections.abc import Collection, Container, Iterable
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from samgraph.predict.video.policy import MemoryPolicy, Position, Selection

Floats = NDArray[np.float32]

# Frames whose observations a stream keeps, whether they are remembered or not.
RECENT: Final = 16
# The numbers of an observation in a saved session, the motion of its box last.
MOTION_SHAPE: Final = (4, 5)
COLUMNS: Final = 11 + MOTION_SHAPE[0] * MOTION_SHAPE[1]


@dataclass(frozen=True, slots=True, eq=False)
class Candidates:
    """The masks that the decoder offers for one object, on low-resolution masks of side L.

    `score` is the object score, a logit. A policy that does not compare masks gets one candidate,
    with neither box nor area, and no masks.
    """

    score: float
    ious: Floats  # [M]
    boxes: Floats  # [M, 4] left, top, right, bottom; zeros for an empty mask
    areas: Floats  # [M]
    masks: NDArray[np.bool_]  # [M, L, L]

    @property
    def best(self) -> int:
        """The mask of the highest predicted IoU."""
        return int(np.argmax(self.ious))


@dataclass(frozen=True, slots=True, eq=False)
class Observation:
    """One object on one tracked frame: which mask was chosen, and what it was like.

    `is_reliable` frames may be read as memories, `is_anchor` frames are read as prompted ones.
    `steady` counts the frames in a row on which the object was found; `motion` is its filter.
    """

    choice: int
    score: float
    iou: float
    area: float = 0.0
    box: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 0.0)
    is_reliable: bool = False
    is_anchor: bool = False
    steady: int = 0
    motion: Floats | None = None  # [4, 5]

    def row(self) -> Floats:
        """All of it as numbers: [COLUMNS]; the motion is zeros where there is none."""
        motion = np.zeros(MOTION_SHAPE) if self.motion is None else self.motion
        flags = (self.is_reliable, self.is_anchor, self.steady)
        numbers = (self.choice, self.score, self.iou, self.area, *self.box, *flags)
        return np.array([*numbers, *motion.ravel()], np.float32)

    @classmethod
    def of_row(cls, row: Floats) -> "Observation":
        """The observation that `row` describes."""
        choice, score, iou, area, left, top, right, bottom, reliable, anchor, steady = (
            float(value) for value in row[:11]
        )
        motion = row[11:].reshape(MOTION_SHAPE).copy()
        return cls(
            int(choice), score, iou, area, (left, top, right, bottom), reliable > 0, anchor > 0,
            int(steady), motion if motion.any() else None,
        )  # fmt: skip


@dataclass(slots=True)
class History:
    """The observations of one object, by frame, with the frames that count, sorted."""

    observed: dict[int, Observation] = field(default_factory=dict)
    reliable: list[int] = field(default_factory=list)
    anchors: list[int] = field(default_factory=list)

    def note(self, frame: int, found: Observation) -> None:
        """Keep an observation, instead of an earlier one of that frame."""
        self.discard(frame)
        self.observed[frame] = found
        if found.is_reliable:
            insort(self.reliable, frame)
        if found.is_anchor:
            insort(self.anchors, frame)

    def discard(self, frame: int) -> None:
        """Drop the observation of a frame."""
        if self.observed.pop(frame, None) is None:
            return
        for frames in (self.reliable, self.anchors):
            at = bisect_left(frames, frame)
            if at < len(frames) and frames[at] == frame:
                del frames[at]

    def keep_only(self, frames: Container[int], since: int) -> None:
        """Drop what is neither of these frames nor recent."""
        for frame in [f for f in self.observed if f < since and f not in frames]:
            self.discard(frame)

    def before(self, position: Position) -> Observation | None:
        """What was found on the frame before."""
        return self.observed.get(position.frame + (1 if position.is_reverse else -1))


def nearest(
    frames: list[int], position: Position, most: int, *, with_own: bool = False
) -> list[int]:
    """The frames of a sorted list that tracking has passed, the nearest first, at most so many.

    `with_own` counts the frame of the position itself.
    """
    if position.is_reverse:
        start = bisect_left(frames, position.frame + (0 if with_own else 1))
        return frames[start : start + most]
    end = bisect_left(frames, position.frame + (1 if with_own else 0))
    return frames[max(0, end - most) : end][::-1]


def box_overlaps(box: Any, boxes: Any) -> Floats:
    """Intersection over union of a box with each of several [M, 4]: [M]."""
    one, others = np.asarray(box, np.float32), np.asarray(boxes, np.float32).reshape(-1, 4)
    low, high = np.maximum(one[:2], others[:, :2]), np.minimum(one[2:], others[:, 2:])
    common = np.prod(np.maximum(high - low, 0), axis=1)
    sizes = np.prod(others[:, 2:] - others[:, :2], axis=1) + np.prod(one[2:] - one[:2])
    return np.asarray(common / np.maximum(sizes - common, np.float32(1e-9)), np.float32)


@runtime_checkable
class ObservingPolicy(MemoryPolicy, Protocol):
    """A policy that decides by what was found on earlier frames, and may choose the mask."""

    @property
    def compares_masks(self) -> bool:
        """Whether it is shown all masks of the decoder, or only the scores of the best."""

    def observe(self, history: History, position: Position, candidates: Candidates) -> Observation:
        """The mask to take on a frame, and what is noted of it; `history` stays as it is."""

    def choose(
        self,
        position: Position,
        prompted: Collection[int],
        tracked: Container[int],
        history: History = ...,
    ) -> Selection:
        """As of `MemoryPolicy`, given what was found of the object."""

    def kept(
        self, frames: Iterable[int], position: Position, history: History = ...
    ) -> tuple[set[int], set[int]]:
        """As of `MemoryPolicy`, given what was found of the object."""


@dataclass(frozen=True, slots=True)
class BoundPolicy:
    """An observing policy for one object: a `MemoryPolicy` that knows the object's history."""

    policy: ObservingPolicy
    history: History

    def choose(
        self, position: Position, prompted: Collection[int], tracked: Container[int]
    ) -> Selection:
        """What the frame reads."""
        return self.policy.choose(position, prompted, tracked, self.history)

    def kept(self, frames: Iterable[int], position: Position) -> tuple[set[int], set[int]]:
        """The tracked frames that are read here or later."""
        return self.policy.kept(frames, position, self.history)

    def keeps_prompted(self, frame: int, position: Position, prompted: Collection[int]) -> bool:
        """Whether a prompted frame of the past may be read."""
        return self.policy.keeps_prompted(frame, position, prompted)

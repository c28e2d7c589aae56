"""What is remembered of an object, and which of it a frame reads.

    prompted   frames the user marked; every later frame, and every earlier one, reads them all
    tracked    frames that were followed; a frame reads the masks of the last six and the
               pointers of the last fifteen

A policy decides what is read and what may be forgotten; `ReferencePolicy` is that of SAM 2. What
it never reads again is dropped, so a bank does not grow with the number of frames.

Shapes: N objects, F frames, T cells of the grid, Q pointers, C channels.
"""

from collections.abc import Callable, Collection, Container, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from samgraph.errors import OptionError
from samgraph.models.sam2.config import Sam2Config

Floats: TypeAlias = NDArray[np.float32]
Stored: TypeAlias = NDArray[Any]
MemoryPrecision: TypeAlias = Literal["bf16", "fp32"]

STORED_AS: dict[str, np.dtype[Any]] = {
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "fp32": np.dtype(np.float32),
}


@dataclass(frozen=True, slots=True)
class Memory:
    """What is remembered of one object on one frame.

    `mask` is [T, 64], or None where only the pointer [C] is still of use.
    """

    mask: Stored | None
    pointer: Floats

    @property
    def bytes(self) -> int:
        """How much memory it takes."""
        return self.pointer.nbytes + (0 if self.mask is None else self.mask.nbytes)


@dataclass(frozen=True, slots=True)
class Moment:
    """A frame that is to be tracked: its number, the direction, and how many frames there are.

    `length` None stands for a video whose end is not known.
    """

    frame: int
    is_reverse: bool = False
    length: int | None = None


@dataclass(frozen=True, slots=True)
class MaskRead:
    """A mask memory to read: whose frame, and the row of the time table that tags it."""

    frame: int
    slot: int
    is_prompted: bool


@dataclass(frozen=True, slots=True)
class PointerRead:
    """A pointer to read: whose frame, and how many frames away it is, forward."""

    frame: int
    distance: int
    is_prompted: bool


@dataclass(frozen=True, slots=True)
class Choice:
    """What a frame reads, in the order it is laid out; `longest` scales distances to 0..1."""

    masks: tuple[MaskRead, ...]
    pointers: tuple[PointerRead, ...]
    longest: int


class MemoryPolicy(Protocol):
    """Decides what a frame reads, and what will be read later."""

    def choose(self, moment: Moment, prompted: Collection[int], tracked: Container[int]) -> Choice:
        """What the frame reads, of the frames there are; `prompted` in the order they came."""

    def keeps_mask(self, frame: int, moment: Moment) -> bool:
        """Whether the mask memory of a tracked frame is read at this moment or later."""

    def keeps_pointer(self, frame: int, moment: Moment) -> bool:
        """The same for its pointer."""

    def keeps_prompted(self, frame: int, moment: Moment, prompted: Collection[int]) -> bool:
        """Whether a prompted frame of the past may be read at this moment or later."""


@dataclass(frozen=True, slots=True)
class ReferencePolicy:
    """What SAM 2 reads.

    Args:
        memory_frames: Rows of the time table: one for prompted frames, the rest for tracked ones.
        max_pointers: The most pointers of tracked frames, plus one.
        max_prompted: The most prompted frames a frame reads, the nearest; None for all. The others
            count as tracked ones.
        stride: Read every n-th tracked frame, and the last one.
        is_signed: Whether pointers of the future have negative distances.
    """

    memory_frames: int = 7
    max_pointers: int = 16
    max_prompted: int | None = None
    stride: int = 1
    is_signed: bool = True

    def __post_init__(self) -> None:
        if self.max_prompted is not None and self.max_prompted < 2:
            raise OptionError(
                "too few prompted frames would be read",
                got=f"max_prompted={self.max_prompted}",
                expected="2 or more, or None for all",
            )
        if self.stride < 1:
            raise OptionError("a stride is at least 1", got=f"stride={self.stride}")

    @classmethod
    def of(
        cls, config: Sam2Config, *, max_prompted: int | None = None, stride: int = 1
    ) -> "ReferencePolicy":
        """The policy of a model."""
        return cls(
            config.memory_frames,
            config.max_pointers,
            max_prompted,
            stride,
            config.signed_pointer_time,
        )

    def choose(self, moment: Moment, prompted: Collection[int], tracked: Container[int]) -> Choice:
        """Prompted frames, then tracked ones from the oldest to the newest; then pointers."""
        chosen = self._nearest(moment.frame, prompted)
        spare = set(prompted).difference(chosen)
        masks = [MaskRead(frame, self.memory_frames - 1, True) for frame in chosen]
        for steps in range(self.memory_frames - 1, 0, -1):
            frame = self._steps_back(moment, steps)
            if frame in tracked:
                masks.append(MaskRead(frame, steps - 1, False))
            elif frame in spare:
                masks.append(MaskRead(frame, steps - 1, True))
        return Choice(
            tuple(masks),
            tuple(self._pointers(moment, chosen, spare, tracked)),
            max(self._most_pointers(moment) - 1, 1),
        )

    def keeps_mask(self, frame: int, moment: Moment) -> bool:
        """The last frame, and those the stride will still reach."""
        back = -1 if moment.is_reverse else 1
        if (moment.frame - frame) * back <= 1:
            return True
        oldest = self._steps_back(moment, self.memory_frames - 1)
        return frame % self.stride == 0 and (frame - oldest) * back >= 0

    def keeps_pointer(self, frame: int, moment: Moment) -> bool:
        """The frames within reach."""
        back = -1 if moment.is_reverse else 1
        return (moment.frame - frame) * back < self._most_pointers(moment)

    def keeps_prompted(self, frame: int, moment: Moment, prompted: Collection[int]) -> bool:
        """All, unless their number is limited: then the nearest, and those still in the window."""
        if self.max_prompted is None or frame in self._nearest(moment.frame, prompted):
            return True
        return self.keeps_mask(frame, moment) or self.keeps_pointer(frame, moment)

    def _nearest(self, now: int, prompted: Collection[int]) -> list[int]:
        """The prompted frames to read: one before, one from now on, then whatever is nearest."""
        if self.max_prompted is None or len(prompted) <= self.max_prompted:
            return list(prompted)
        before = max((frame for frame in prompted if frame < now), default=None)
        after = min((frame for frame in prompted if frame >= now), default=None)
        chosen = [frame for frame in (before, after) if frame is not None]
        others = sorted(
            (frame for frame in prompted if frame not in chosen), key=lambda frame: abs(frame - now)
        )
        return chosen + others[: self.max_prompted - len(chosen)]

    def _steps_back(self, moment: Moment, steps: int) -> int:
        """The tracked frame that is so many steps back, in the direction of tracking."""
        now, stride = moment.frame, self.stride
        if moment.is_reverse:
            return (
                now + 1 if steps == 1 else -(-(now + 2) // stride) * stride + (steps - 2) * stride
            )
        return now - 1 if steps == 1 else (now - 2) // stride * stride - (steps - 2) * stride

    def _pointers(
        self, moment: Moment, chosen: Sequence[int], spare: Container[int], tracked: Container[int]
    ) -> Iterable[PointerRead]:
        """Prompted frames that are not in the future, then tracked ones, the nearest first."""
        back = -1 if moment.is_reverse else 1
        for frame in chosen:
            distance = (moment.frame - frame) * back
            if distance >= 0:
                yield PointerRead(frame, distance, True)
        for steps in range(1, self._most_pointers(moment)):
            frame = moment.frame - steps * back
            if frame in tracked:
                yield PointerRead(frame, steps, False)
            elif frame in spare:
                yield PointerRead(frame, steps, True)

    def _most_pointers(self, moment: Moment) -> int:
        return self.max_pointers if moment.length is None else min(moment.length, self.max_pointers)


@dataclass(frozen=True, slots=True)
class Recalled:
    """The memory of one object as the graph wants it; one object's part of its inputs."""

    masks: tuple[Stored, ...]  # F of [T, 64]
    slots: tuple[int, ...]
    pointers: tuple[Floats, ...]  # Q of [C]
    times: tuple[float, ...]

    @property
    def lengths(self) -> tuple[int, int]:
        """F and Q; objects with the same can be run together."""
        return len(self.masks), len(self.pointers)


def recall(choice: Choice, find: Callable[[int, bool], Memory]) -> Recalled:
    """Fetch what was chosen; `find` takes a frame, and whether it is a prompted one."""
    masks = [find(read.frame, read.is_prompted).mask for read in choice.masks]
    return Recalled(
        tuple(mask for mask in masks if mask is not None),
        tuple(
            read.slot for read, mask in zip(choice.masks, masks, strict=True) if mask is not None
        ),
        tuple(find(read.frame, read.is_prompted).pointer for read in choice.pointers),
        tuple(read.distance / choice.longest for read in choice.pointers),
    )


@dataclass(slots=True)
class MemoryBank:
    """What is remembered of one object, by frame. Frames below 0 are those of an earlier video."""

    prompted: dict[int, Memory] = field(default_factory=dict)
    tracked: dict[int, Memory] = field(default_factory=dict)

    @property
    def bytes(self) -> int:
        """How much memory it takes."""
        return sum(one.bytes for store in (self.prompted, self.tracked) for one in store.values())

    def recall(self, policy: MemoryPolicy, moment: Moment) -> Recalled:
        """What the frame reads."""
        return recall(policy.choose(moment, self.prompted, self.tracked), self._find)

    def remember(self, frame: int, memory: Memory) -> None:
        """A frame that was tracked."""
        self.tracked[frame] = memory

    def remember_prompted(self, frame: int, memory: Memory) -> None:
        """A frame that was prompted; what tracking found there is forgotten."""
        self.prompted[frame] = memory
        self.tracked.pop(frame, None)

    def forget(self, policy: MemoryPolicy, moments: Collection[Moment]) -> list[tuple[int, Memory]]:
        """Drop what will be read at none of these moments, nor after them; returns what was.

        A mask that is dropped before its pointer comes back with it, once.
        """
        dropped = []
        for frame, memory in list(self.tracked.items()):
            if any(policy.keeps_mask(frame, moment) for moment in moments):
                continue
            if memory.mask is not None:
                dropped.append((frame, memory))
            if any(policy.keeps_pointer(frame, moment) for moment in moments):
                self.tracked[frame] = Memory(None, memory.pointer)
            else:
                del self.tracked[frame]
        return dropped

    def _find(self, frame: int, is_prompted: bool) -> Memory:
        return (self.prompted if is_prompted else self.tracked)[frame]


def checked_precision(precision: str) -> np.dtype[Any]:
    """The type memories are stored in."""
    if precision not in STORED_AS:
        known = ", ".join(STORED_AS)
        raise OptionError(f"memory cannot be stored as `{precision}`", expected=known)
    return STORED_AS[precision]

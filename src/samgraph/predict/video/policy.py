"""Memory policies: which remembered frames a frame reads, and which may be forgotten.

    prompted   frames the user marked; every frame reads them all, those in the future too
    tracked    a frame reads the mask memories of the last six and the pointers of the last fifteen

`ReferencePolicy` is that of SAM 2; `policies/` has others, which observe what was found.
"""

from collections.abc import Collection, Container, Iterable
from dataclasses import dataclass
from typing import Protocol, Self, TypeAlias, runtime_checkable

from samgraph.errors import OptionError
from samgraph.models.family import ModelConfig

# The frame, its row of the temporal position encoding, and whether it was prompted.
MaskRead: TypeAlias = tuple[int, int, bool]
# The frame, how many frames away it is in the direction of tracking, and whether it was prompted.
PointerRead: TypeAlias = tuple[int, int, bool]


@dataclass(frozen=True, slots=True)
class Position:
    """A frame to be tracked: its index, the direction, and the number of frames, if it is known."""

    frame: int
    is_reverse: bool = False
    length: int | None = None


@dataclass(frozen=True, slots=True)
class Selection:
    """What a frame reads, in the order of attention; `longest` scales distances to 0..1."""

    masks: tuple[MaskRead, ...]
    pointers: tuple[PointerRead, ...]
    longest: int


@runtime_checkable
class MemoryPolicy(Protocol):
    """Decides what a frame reads, and what will be read later."""

    def choose(
        self, position: Position, prompted: Collection[int], tracked: Container[int]
    ) -> Selection:
        """What the frame reads, of the frames there are; `prompted` in the order they came.

        A frame that is among both counts as prompted.
        """

    def kept(self, frames: Iterable[int], position: Position) -> tuple[set[int], set[int]]:
        """The tracked frames whose mask memory, and whose pointer, is read here or later."""

    def keeps_prompted(self, frame: int, position: Position, prompted: Collection[int]) -> bool:
        """Whether a prompted frame of the past may be read at this position or later."""


@dataclass(frozen=True, slots=True)
class ReferencePolicy:
    """What SAM 2 reads.

    Args:
        memory_frames: Rows of the temporal position encoding: one for prompted frames, the rest
            for tracked frames.
        max_pointers: The most pointers of tracked frames, plus one.
        max_prompted: The most prompted frames a frame reads, the nearest; None for all, 1 for the
            one where the track began. The others count as tracked frames.
        stride: Read every n-th tracked frame, and the last one.
        is_signed: Whether pointers of the future have negative distances.
    """

    memory_frames: int = 7
    max_pointers: int = 16
    max_prompted: int | None = None
    stride: int = 1
    is_signed: bool = True

    def __post_init__(self) -> None:
        if self.max_prompted is not None and self.max_prompted < 1:
            raise OptionError(
                "too few prompted frames would be read",
                got=f"max_prompted={self.max_prompted}",
                expected="1 or more, or None for all",
            )
        if self.stride < 1:
            raise OptionError("a stride is at least 1", got=f"stride={self.stride}")

    @classmethod
    def of(cls, config: ModelConfig, *, max_prompted: int | None = None, stride: int = 1) -> Self:
        """The policy of a model; one that `obeys_clicks` learned from tracks with one prompt."""
        return cls(
            config.memory_frames,
            config.max_pointers,
            1 if max_prompted is None and config.obeys_clicks else max_prompted,
            stride,
            config.signed_pointer_time,
        )

    def choose(
        self, position: Position, prompted: Collection[int], tracked: Container[int]
    ) -> Selection:
        """Prompted frames, then tracked frames from the oldest to the newest; then pointers.

        Pointers are those of prompted frames that are not in the future, then of tracked frames,
        the nearest first.
        """
        now, back = position.frame, -1 if position.is_reverse else 1
        chosen, last_slot = self._read(position, prompted), self.memory_frames - 1
        spare = set(prompted).difference(chosen)
        masks, pointers = [], []
        for frame in chosen:
            masks.append((frame, last_slot, True))
            if (now - frame) * back >= 0:
                pointers.append((frame, (now - frame) * back, True))
        start, most = self._reach(position)
        for steps in range(last_slot, 0, -1):
            frame = start + (last_slot - steps) * self.stride * back if steps > 1 else now - back
            if frame in spare or (frame in tracked and frame not in prompted):
                masks.append((frame, steps - 1, frame in spare))
        for steps in range(1, most):
            frame = now - steps * back
            if frame in spare or (frame in tracked and frame not in prompted):
                pointers.append((frame, steps, frame in spare))
        return Selection(tuple(masks), tuple(pointers), max(most - 1, 1))

    def kept(self, frames: Iterable[int], position: Position) -> tuple[set[int], set[int]]:
        """The last frame and those the stride will still reach; pointers within reach."""
        now, back = position.frame, -1 if position.is_reverse else 1
        start, most = self._reach(position)
        masks, pointers = set(), set()
        for frame in frames:
            distance = (now - frame) * back
            if distance <= 1 or (frame % self.stride == 0 and (frame - start) * back >= 0):
                masks.add(frame)
            if distance < most:
                pointers.add(frame)
        return masks, pointers

    def keeps_prompted(self, frame: int, position: Position, prompted: Collection[int]) -> bool:
        """All, unless their number is limited: then the nearest, and those still in the window."""
        if self.max_prompted is None or frame in self._read(position, prompted):
            return True
        return any(self.kept([frame], position))

    def _read(self, position: Position, prompted: Collection[int]) -> list[int]:
        """The prompted frames to read: one before, one from now on, then whatever is nearest.

        Of a single one, the first that was passed; the nearest where none was.
        """
        now, back = position.frame, -1 if position.is_reverse else 1
        if self.max_prompted is None or len(prompted) <= self.max_prompted:
            return list(prompted)
        if self.max_prompted == 1:
            passed = [frame for frame in prompted if (now - frame) * back >= 0]
            if passed:
                return [min(passed, key=lambda frame: frame * back)]
            return [min(prompted, key=lambda frame: abs(frame - now))]
        before = max((frame for frame in prompted if frame < now), default=None)
        after = min((frame for frame in prompted if frame >= now), default=None)
        chosen = [frame for frame in (before, after) if frame is not None]
        others = sorted(
            (frame for frame in prompted if frame not in chosen), key=lambda frame: abs(frame - now)
        )
        return chosen + others[: self.max_prompted - len(chosen)]

    def _reach(self, position: Position) -> tuple[int, int]:
        """The tracked frame that is the most steps back, and the number of pointers plus one.

        The first step back is the frame before; the others are multiples of the stride.
        """
        now, stride, steps, length = (
            position.frame,
            self.stride,
            self.memory_frames - 1,
            position.length,
        )
        if steps == 1:
            start = now + 1 if position.is_reverse else now - 1
        elif position.is_reverse:
            start = -(-(now + 2) // stride) * stride + (steps - 2) * stride
        else:
            start = (now - 2) // stride * stride - (steps - 2) * stride
        return start, self.max_pointers if length is None else min(length, self.max_pointers)

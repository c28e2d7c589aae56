"""What every source of frames is: numbered frames of one size, and a report of damage."""

from dataclasses import dataclass
from types import TracebackType
from typing import Literal, Protocol, Self, TypeAlias, runtime_checkable

import numpy as np

from samgraph.errors import VideoError
from samgraph.media.image.reading import Rgb
from samgraph.untrusted.arguments import choice

OnDamage: TypeAlias = Literal["error", "skip"]


class MissingFrameError(VideoError):
    """One frame cannot be read, and the source was told to go on without it."""


@dataclass(frozen=True, slots=True)
class Damage:
    """What is wrong with a source, as far as it has been read.

    Attributes:
        declared: How many frames the header promises; None if it does not say.
        found: How many frames there is data for; None while an iterator still runs.
        decoded: How many different frames have been decoded so far.
        missing: The frames that were asked for, or passed over, and could not be decoded.
        concealed: Frames whose damaged parts the decoder has filled in by guessing.
        resized: Frames that had another size than the first, and were given its size.
        is_cut_short: The file ends before its header says it does.
    """

    declared: int | None = None
    found: int | None = None
    decoded: int = 0
    missing: tuple[int, ...] = ()
    concealed: tuple[int, ...] = ()
    resized: tuple[int, ...] = ()
    is_cut_short: bool = False

    @property
    def lost(self) -> int:
        """How many of the declared frames are not in the file at all."""
        return max((self.declared or 0) - (self.found or 0), 0) if self.found is not None else 0

    @property
    def is_damaged(self) -> bool:
        """Whether anything is wrong; a change of size is not."""
        return bool(self.missing or self.concealed or self.lost or self.is_cut_short)

    def __str__(self) -> str:
        """The damage in one line, or `no damage`."""
        parts = []
        if self.missing:
            parts.append(f"{_frames(self.missing)} cannot be decoded")
        if self.lost:
            parts.append(f"{self.lost} of {self.declared} declared frames are not in the file")
        elif self.is_cut_short:
            parts.append("the file is cut short")
        if self.concealed:
            parts.append(f"{_frames(self.concealed)} partly guessed by the decoder")
        if self.resized:
            parts.append(f"{_frames(self.resized)} of another size")
        return "; ".join(parts) or "no damage"


@runtime_checkable
class FrameSource(Protocol):
    """Frames by number. Any thread may ask; answers are given one at a time."""

    @property
    def name(self) -> str:
        """A short name: that of the file or folder."""

    @property
    def length(self) -> int | None:
        """How many frames there are, gaps included; None if that is not known (yet)."""

    @property
    def size_hw(self) -> tuple[int, int]:
        """Height and width of every frame."""

    @property
    def damage(self) -> Damage:
        """What is wrong, as far as has been read."""

    def frame(self, index: int) -> Rgb:
        """The frame as uint8 RGB, [H, W, 3].

        Raises:
            MissingFrameError: It cannot be decoded, and damage is to be skipped.
            VideoError: It does not exist, cannot be decoded, or has been forgotten.
        """

    def time(self, index: int) -> float | None:
        """Seconds from the first frame to this one; None where frames carry no time."""

    def close(self) -> None:
        """Let go of files and frames. May be called twice."""

    def __enter__(self) -> Self:
        """The source itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close it."""
        self.close()


def skips(on_damage: str) -> bool:
    """Whether damage is to be skipped; an `OptionError` for words that say neither."""
    return choice("on_damage", on_damage, ("error", "skip")) == "skip"


def check_index(index: int, length: int | None, name: str) -> None:
    """Refuse a frame number that is not there."""
    if not isinstance(index, int | np.integer) or isinstance(index, bool):
        raise VideoError("a frame is asked for by its number", got=f"a {type(index).__name__}")
    if index < 0 or (length is not None and index >= length):
        last = "from 0 on" if length is None else f"0 to {length - 1}"
        raise VideoError(f"{name} has no frame {index}", expected=last)


def check_frame_size(label: str, found: tuple[int, ...], expected: tuple[int, int]) -> None:
    """Refuse a frame whose size is not that of the first."""
    if tuple(found) != expected:
        raise VideoError(
            f"{label} has another size than the first frame",
            got=f"{found[1]} x {found[0]}",
            expected=f"{expected[1]} x {expected[0]}",
            hint="give frames of one size",
        )


def _frames(indices: tuple[int, ...]) -> str:
    """`frame 38`, or `11 frames from 38 on`."""
    first = indices[0]
    return f"frame {first}" if len(indices) == 1 else f"{len(indices)} frames from {first} on"

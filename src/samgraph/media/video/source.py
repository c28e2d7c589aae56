"""The protocol of frame sources: indexed frames of one size, and a report of damage."""

import os
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Literal, Protocol, Self, TypeAlias, runtime_checkable

import numpy as np

from samgraph.errors import VideoError
from samgraph.media.image.reading import Rgb
from samgraph.untrusted.arguments import choice

OnDamage: TypeAlias = Literal["error", "skip"]


class MissingFrameError(VideoError):
    """A frame cannot be read, and the source skips damage."""


@dataclass(frozen=True, slots=True)
class Damage:
    """What is wrong with a source, as far as it has been read.

    Attributes:
        declared: The number of frames the header declares; None if it does not.
        found: The number of frames with data; None while an iterator has not ended.
        decoded: The number of distinct frames decoded so far.
        missing: Indices of the frames that could not be decoded.
        concealed: Indices of frames with error concealment by the decoder.
        resized: Indices of frames of another size, resized to that of the first.
        is_cut_short: The file is shorter than its header declares.
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
        """The number of declared frames that are not in the file."""
        return max((self.declared or 0) - (self.found or 0), 0) if self.found is not None else 0

    @property
    def is_damaged(self) -> bool:
        """Whether anything is damaged; a change of size is not damage."""
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
    """Frames by index. Thread-safe; requests are served one at a time."""

    @property
    def name(self) -> str:
        """The name of the file or folder."""

    @property
    def length(self) -> int | None:
        """The number of frames, missing frames included; None while it is not known."""

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
            VideoError: It does not exist, cannot be decoded, or has been dropped.
        """

    def time(self, index: int) -> float | None:
        """Seconds from the first frame to this one; None without timestamps."""

    def frame_name(self, index: int) -> str:
        """What a frame is called in written files: its own file name, or `00012.png`."""
        return numbered_name(index)

    def close(self) -> None:
        """Close files and drop cached frames. May be called twice."""

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


def numbered_name(index: int) -> str:
    """The name of a frame that has none of its own."""
    return f"{index:05d}.png"


def file_names(items: Collection[object]) -> tuple[str, ...]:
    """The names of files that differ without their suffixes, as their masks must; else nothing."""
    paths = [Path(item) for item in items if isinstance(item, str | os.PathLike)]
    are_different = len({path.stem for path in paths}) == len(items)
    return tuple(path.name for path in paths) if are_different else ()


def skips(on_damage: str) -> bool:
    """Whether damage is to be skipped; `OptionError` for unknown values."""
    return choice("on_damage", on_damage, ("error", "skip")) == "skip"


def check_index(index: int, length: int | None, name: str) -> None:
    """Raise `VideoError` for a frame index that is out of range."""
    if not isinstance(index, int | np.integer) or isinstance(index, bool):
        raise VideoError("a frame index is an integer", got=f"a {type(index).__name__}")
    if index < 0 or (length is not None and index >= length):
        last = "from 0 on" if length is None else f"0 to {length - 1}"
        raise VideoError(f"{name} has no frame {index}", expected=last)


def check_frame_size(label: str, found: tuple[int, ...], expected: tuple[int, int]) -> None:
    """Raise `VideoError` for a frame whose size is not that of the first."""
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

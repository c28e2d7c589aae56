"""The masks of a tracked video, on disk: a file that is only appended to, and an index in memory.

A line is one object on one frame, or the removal of an object, or of a frame of it; later lines
replace earlier lines. A line is acknowledged once it is written: a process that is killed
loses none. In memory are 34 bytes per object and frame: 3.7 MB per object for an hour of video.
"""

import os
import threading
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Annotated

import msgspec
import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from samgraph.errors import OutputError
from samgraph.media.files import unwritable
from samgraph.media.mask import rle as run_lengths
from samgraph.media.mask.rle import Rle

FIRST_CAPACITY = 256
SYNC_SECONDS = 1.0
LONGEST_LINE = 64 << 20
MOST_FRAMES = 1 << 22  # of a video from elsewhere whose length is unknown: 46 hours
# A file is rewritten when it is loaded and more than half of it was replaced.
LEAST_TO_COMPACT = 1 << 20

Frame = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Side = Annotated[int, Meta(ge=0, le=65_535)]


class MaskLine(msgspec.Struct, frozen=True, tag="mask", forbid_unknown_fields=True):
    """One object on one frame; `version` counts the changes of its prompts."""

    frame: Frame
    object: Frame
    version: Frame
    prompted: bool
    present: bool
    score: float
    object_score: float
    area: Annotated[int, Meta(ge=0)]
    box: tuple[Side, Side, Side, Side]
    counts: str

    def rle(self, size_hw: tuple[int, int]) -> Rle:
        """The mask."""
        return {"size": list(size_hw), "counts": self.counts.encode("ascii")}


class Forget(msgspec.Struct, frozen=True, tag="forget", forbid_unknown_fields=True):
    """The removal of an object, or of one frame of it."""

    object: Frame
    frame: Frame | None = None


_DECODER = msgspec.json.Decoder(MaskLine | Forget)


class Lane:
    """What is known of one object, by frame; frames that are not known have length 0."""

    def __init__(self) -> None:
        self.offset = np.zeros(0, np.int64)
        self.length = np.zeros(0, np.int32)
        self.area = np.zeros(0, np.int64)
        self.score = np.zeros(0, np.float32)
        self.version = np.zeros(0, np.int32)
        self.present = np.zeros(0, np.bool_)
        self.prompted = np.zeros(0, np.bool_)

    @property
    def known(self) -> NDArray[np.bool_]:
        """Whether there is a mask, [F]."""
        return self.length > 0

    def note(self, line: MaskLine, offset: int, length: int) -> None:
        """Index a line of the file."""
        frame = line.frame
        if frame >= len(self.length):
            self._grow(frame + 1)
        self.offset[frame], self.length[frame] = offset, length
        self.area[frame], self.score[frame] = line.area, line.score
        self.version[frame], self.present[frame] = line.version, line.present
        self.prompted[frame] = line.prompted

    def forget(self, frame: int) -> None:
        """Drop one frame."""
        if frame < len(self.length):
            self.length[frame] = 0

    def _grow(self, frames: int) -> None:
        size = max(FIRST_CAPACITY, frames, 2 * len(self.length))
        for name, array in vars(self).items():
            setattr(self, name, np.concatenate([array, np.zeros(size - len(array), array.dtype)]))


class MaskFile:
    """The masks of one video. Written by one thread at a time, read by any; `lock` guards it."""

    def __init__(self, path: Path, size_hw: tuple[int, int]) -> None:
        self.size_hw, self._path = size_hw, path
        self.lock = threading.RLock()
        self.lanes: dict[int, Lane] = {}
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
            self._end = self._load()
            os.ftruncate(self._file, self._end)
        except OSError as error:
            raise unwritable(path.name, error) from error
        self._synced = time.monotonic()
        live = sum(int(lane.length.sum()) for lane in self.lanes.values())
        if self._end > max(LEAST_TO_COMPACT, 2 * live):
            self._compact()

    def __len__(self) -> int:
        return sum(int(lane.known.sum()) for lane in self.lanes.values())

    def append(self, lines: Sequence[MaskLine | Forget]) -> None:
        """Write lines, all of them or none.

        Raises:
            OutputError: The disk is full; all that was there stays.
        """
        coded = [msgspec.json.encode(line) + b"\n" for line in lines]
        data = b"".join(coded)
        try:
            written = 0
            while written < len(data):
                written += os.pwrite(self._file, data[written:], self._end + written)
            if time.monotonic() - self._synced > SYNC_SECONDS:
                self.sync()
        except OSError as error:
            with suppress(OSError):
                os.ftruncate(self._file, self._end)
            raise unwritable(self._path.name, error) from error
        with self.lock:
            for line, code in zip(lines, coded, strict=True):
                self._note(line, self._end, len(code))
                self._end += len(code)

    def read(self, obj: int, frame: int) -> MaskLine | None:
        """One object on one frame, if it is known."""
        with self.lock:
            lane = self.lanes.get(obj)
            if lane is None or frame >= len(lane.length) or not lane.length[frame]:
                return None
            length, offset = int(lane.length[frame]), int(lane.offset[frame])
        data = os.pread(self._file, length, offset)
        found = _DECODER.decode(data)
        return found if isinstance(found, MaskLine) else None

    def on(self, frame: int) -> list[MaskLine]:
        """All objects that are known on a frame."""
        found = (self.read(obj, frame) for obj in list(self.lanes))
        return [line for line in found if line is not None]

    def frames(self) -> NDArray[np.int64]:
        """The frames on which any object is known, ascending."""
        with self.lock:
            known = [np.flatnonzero(lane.known) for lane in self.lanes.values()]
        return np.unique(np.concatenate([np.zeros(0, np.int64), *known]))

    def copy_to(self, path: Path) -> None:
        """A file with what is known now."""
        with path.open("xb") as file:
            for data in self._living():
                file.write(data)
            file.flush()
            os.fsync(file.fileno())

    def sync(self) -> None:
        """Flush what was written to disk."""
        os.fsync(self._file)
        self._synced = time.monotonic()

    def close(self) -> None:
        """Close the file."""
        with suppress(OSError):
            self.sync()
        os.close(self._file)

    def _living(self) -> Iterator[bytes]:
        for lane in self.lanes.values():
            for frame in np.flatnonzero(lane.known).tolist():
                yield os.pread(self._file, int(lane.length[frame]), int(lane.offset[frame]))

    def _note(self, line: MaskLine | Forget, offset: int, length: int) -> None:
        if isinstance(line, MaskLine):
            self.lanes.setdefault(line.object, Lane()).note(line, offset, length)
        elif line.frame is None:
            self.lanes.pop(line.object, None)
        elif line.object in self.lanes:
            self.lanes[line.object].forget(line.frame)

    def _load(self) -> int:
        """Index the lines of an earlier run; returns the offset after the last whole line."""
        end = 0
        pixels = self.size_hw[0] * self.size_hw[1]
        with os.fdopen(os.dup(self._file), "rb") as file:
            file.seek(0)
            while data := file.readline(LONGEST_LINE):
                try:
                    line = _DECODER.decode(data) if data.endswith(b"\n") else None
                except (ValueError, RecursionError):
                    line = None
                if line is None or (isinstance(line, MaskLine) and line.area > pixels):
                    break
                self._note(line, end, len(data))
                end += len(data)
        return end

    def _compact(self) -> None:
        """Rewrite the file with what is known."""
        fresh = self._path.with_name(f".{self._path.name}.part")
        fresh.unlink(missing_ok=True)
        try:
            self.copy_to(fresh)
            fresh.replace(self._path)
            os.close(self._file)
            self._file = os.open(self._path, os.O_RDWR)
        except OSError as error:
            raise OutputError(f"`{self._path.name}` cannot be written") from error
        self.lanes = {}
        self._end = self._load()


def are_masks(
    file: IO[bytes], size_hw: tuple[int, int], frames: int | None, objects: Collection[int]
) -> bool:
    """Whether a file from elsewhere holds masks of these objects on a video like this."""
    while data := file.readline(LONGEST_LINE):
        try:
            line = _DECODER.decode(data) if data.endswith(b"\n") else None
        except (ValueError, RecursionError):
            return False
        if line is None or line.object not in objects:
            return False
        if isinstance(line, MaskLine) and not _fits(line, size_hw, frames):
            return False
    return True


def _fits(line: MaskLine, size_hw: tuple[int, int], frames: int | None) -> bool:
    """Whether the frame of a line is in the video, and its mask has the size and area it says."""
    try:
        area = run_lengths.area(line.rle(size_hw))
    except (ValueError, UnicodeError):
        return False
    (height, width), (left, top, right, bottom) = size_hw, line.box
    is_inside = left <= right <= width and top <= bottom <= height
    return area == line.area and is_inside and line.frame < (frames or MOST_FRAMES)

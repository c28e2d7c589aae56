"""Checks of the boxes of an MP4 or MOV file before FFmpeg opens it.

A few bytes can declare a thousand million samples of one byte each, or an edit list that repeats a
segment without end, and FFmpeg allocates a table of that many rows, gigabytes, before it reads the
first. Counts without data behind them are found here, and the file is refused. A fragmented file
that ends inside a box is truncated, which FFmpeg ignores. Everything else is left to FFmpeg.
"""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from samgraph.errors import VideoError

# The container boxes, which FFmpeg parses wherever they are.
HOLDERS = frozenset(
    b"moov trak mdia minf stbl moof traf mvex edts udta dinf gmhd tref wave tapt".split()
)
OTHER_FORMATS = (b"\x1aE\xdf\xa3", b"RIFF")
MOST_DEPTH = 12
MOST_BOXES = 1_000_000
# Tables of fewer rows are cheap, whatever is behind them.
FREE_ROWS = 200_000
# An edit list may repeat samples, and each edit starts decoding at the keyframe before it. Real
# edit lists have a few entries; every row needs some bytes of the file.
FREE_EDITED_ROWS, BYTES_PER_EDITED_ROW = 20_000, 8
SAMPLE_FIELDS = 0xF00
NO_MEDIA = 0xFFFFFFFF  # the media time of an empty edit


def check_boxes(path: str, label: str) -> bool:
    """Whether a fragmented file ends inside a box; raises if it declares samples without data.

    Raises:
        VideoError: It declares far more samples than it has bytes for, or its index is compressed,
            which could conceal the same.
    """
    with Path(path).open("rb") as file:
        if file.read(4) in OTHER_FORMATS:
            return False
        length = file.seek(0, 2)
        count = _Rows(file, length)
        for number, (kind, start, stop) in enumerate(_boxes(file, 0, length)):
            if number > MOST_BOXES:
                raise VideoError(f"{label} has more than {MOST_BOXES:,} boxes")
            if kind == b"cmov":
                raise VideoError(f"{label} has a compressed index, which is not read")
            rows = count.rows_with(kind, start, stop)
            if rows:
                raise VideoError(
                    f"{label} declares more frames than it has bytes for",
                    got=f"{rows:,} frames in {length:,} bytes",
                )
        return count.is_fragmented and _is_cut(file, length)


class _Rows:
    """The rows of the tables that FFmpeg would allocate for the boxes read so far."""

    def __init__(self, file: BinaryIO, length: int) -> None:
        self._file, self._length = file, length
        self._fragments = self._edited = self._samples = self._edits = 0
        self.is_fragmented = False

    def rows_with(self, kind: bytes, start: int, stop: int) -> int:
        """The number of rows including this box's, if that is too many; else 0."""
        rows, most = 0, FREE_ROWS
        if kind == b"trak":
            self._edited += self._samples * self._edits
            self._samples = self._edits = 0
        elif kind in (b"stsz", b"stz2"):
            rows = _rows_of_table(self._file, start, self._length) if kind == b"stsz" else 0
            self._samples = max(self._samples, _numbers(self._file, start, 3)[2])
        elif kind == b"trun":
            self._fragments += _rows_of_run(self._file, start)
            rows = self._fragments if self._fragments > self._length else 0
        elif kind == b"elst":
            self._edits = max(self._edits, _edits(self._file, start, min(stop, self._length)))
        self.is_fragmented |= kind in (b"moof", b"mvex")
        if kind in (b"stsz", b"stz2", b"elst") and self._edits > 1 and not rows:
            rows = self._edited + self._samples * self._edits
            most = max(FREE_EDITED_ROWS, self._length // BYTES_PER_EDITED_ROW)
        return rows if rows > most else 0


def _edits(file: BinaryIO, start: int, stop: int) -> int:
    """The number of entries of an edit list that are not empty edits."""
    flags, count = _numbers(file, start, 2)
    size, time = (20, 8) if flags >> 24 == 1 else (12, 4)
    shown = 0
    file.seek(start + 8)
    for _ in range(min(count, max(stop - start - 8, 0) // size)):
        shown += int.from_bytes(file.read(size)[time : time + 4]) != NO_MEDIA
    return shown


def _is_cut(file: BinaryIO, length: int) -> bool:
    """Whether the last box is truncated."""
    outer = _boxes(file, 0, length, depth=MOST_DEPTH)
    return max((stop for _, _, stop in outer), default=0) != length


def _rows_of_table(file: BinaryIO, start: int, length: int) -> int:
    """The number of samples of a track, if all have one size and the file is too short for them."""
    _, size, count = _numbers(file, start, 3)
    return count if size * count > length else 0


def _rows_of_run(file: BinaryIO, start: int) -> int:
    """The number of samples of a track fragment run, if it has no fields per sample."""
    flags, count = _numbers(file, start, 2)
    return 0 if flags & SAMPLE_FIELDS else count


def _boxes(
    file: BinaryIO, start: int, end: int, depth: int = 0
) -> Iterator[tuple[bytes, int, int]]:
    """Type, start and stop of the content of every box; nested boxes follow their container."""
    while start + 8 <= end:
        size, kind = _header(file, start)
        content = start + 8
        if size == 1:
            size, content = _long_size(file, content), start + 16
        stop = end if size == 0 else start + size
        if stop < content:
            return
        yield kind, content, stop
        if kind in HOLDERS and depth < MOST_DEPTH:
            yield from _boxes(file, content, min(stop, end), depth + 1)
        start = stop


def _header(file: BinaryIO, offset: int) -> tuple[int, bytes]:
    file.seek(offset)
    raw = file.read(8)
    return (int.from_bytes(raw[:4]), raw[4:]) if len(raw) == 8 else (0, b"")


def _long_size(file: BinaryIO, offset: int) -> int:
    file.seek(offset)
    return int.from_bytes(file.read(8))


def _numbers(file: BinaryIO, offset: int, count: int) -> tuple[int, ...]:
    """Unsigned 32-bit integers at an offset; zeros past the end of the file."""
    file.seek(offset)
    return struct.unpack(f">{count}I", file.read(4 * count).ljust(4 * count, b"\0"))

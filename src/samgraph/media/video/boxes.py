"""A look at the boxes of an MP4 or MOV file before FFmpeg gets to see them.

A few bytes can say "a thousand million frames of one byte each", or "show this part, and again,
and again", and FFmpeg makes a table of that many rows, gigabytes, before it reads the first. So
counts that have nothing behind them are found here, and the file is refused. A fragmented file that
ends in the middle of a box is cut short, which FFmpeg passes over. Everything else is left to it.
"""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from samgraph.errors import VideoError

# The boxes in which FFmpeg looks for others, wherever they stand.
HOLDERS = frozenset(
    b"moov trak mdia minf stbl moof traf mvex edts udta dinf gmhd tref wave tapt".split()
)
OTHER_FORMATS = (b"\x1aE\xdf\xa3", b"RIFF")
MOST_DEPTH = 12
MOST_BOXES = 1_000_000
# Fewer rows than this are made in no time, whatever is behind them.
FREE_ROWS = 200_000
# An edit list may show samples again, and each edit starts decoding at the key frame before it. A
# real one has a few entries; every row of it has some bytes of the file behind it.
FREE_EDITED_ROWS, BYTES_PER_EDITED_ROW = 20_000, 8
SAMPLE_FIELDS = 0xF00
NO_MEDIA = 0xFFFFFFFF  # the media time of an edit that shows nothing


def check_boxes(path: str, label: str) -> bool:
    """Whether a fragmented file ends inside a box; refuses one that declares rows without bytes.

    Raises:
        VideoError: It declares far more samples than it has bytes for, or its index is compressed,
            which could hide the same.
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
    """The rows of the tables that FFmpeg would make of the boxes met so far."""

    def __init__(self, file: BinaryIO, length: int) -> None:
        self._file, self._length = file, length
        self._fragments = self._edited = self._samples = self._edits = 0
        self.is_fragmented = False

    def rows_with(self, kind: bytes, start: int, stop: int) -> int:
        """How many rows there are with this box, if they are too many; else 0."""
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
    """The entries of an edit list that show something."""
    flags, count = _numbers(file, start, 2)
    size, time = (20, 8) if flags >> 24 == 1 else (12, 4)
    shown = 0
    file.seek(start + 8)
    for _ in range(min(count, max(stop - start - 8, 0) // size)):
        shown += int.from_bytes(file.read(size)[time : time + 4]) != NO_MEDIA
    return shown


def _is_cut(file: BinaryIO, length: int) -> bool:
    """Whether the last box reaches beyond the end, or is too short to be one."""
    outer = _boxes(file, 0, length, depth=MOST_DEPTH)
    return max((stop for _, _, stop in outer), default=0) != length


def _rows_of_table(file: BinaryIO, start: int, length: int) -> int:
    """The samples of a track, if they have one size, and the file is too short for them."""
    _, size, count = _numbers(file, start, 3)
    return count if size * count > length else 0


def _rows_of_run(file: BinaryIO, start: int) -> int:
    """The samples of a fragment, if it spends no bytes on each of them."""
    flags, count = _numbers(file, start, 2)
    return 0 if flags & SAMPLE_FIELDS else count


def _boxes(
    file: BinaryIO, start: int, end: int, depth: int = 0
) -> Iterator[tuple[bytes, int, int]]:
    """Every box, where its content begins and ends; those inside others after the outer one."""
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


def _header(file: BinaryIO, place: int) -> tuple[int, bytes]:
    file.seek(place)
    raw = file.read(8)
    return (int.from_bytes(raw[:4]), raw[4:]) if len(raw) == 8 else (0, b"")


def _long_size(file: BinaryIO, place: int) -> int:
    file.seek(place)
    return int.from_bytes(file.read(8))


def _numbers(file: BinaryIO, place: int, count: int) -> tuple[int, ...]:
    """Numbers of four bytes; zeros past the end of the file."""
    file.seek(place)
    return struct.unpack(f">{count}I", file.read(4 * count).ljust(4 * count, b"\0"))

"""A look at the boxes of an MP4 or MOV file before FFmpeg gets to see them.

A few bytes can say "a thousand million frames of one byte each", and FFmpeg makes a table of that
many rows, gigabytes, before it reads the first. So counts that have nothing behind them are found
here, and the file is refused. Everything else is left to FFmpeg to judge.
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
SAMPLE_FIELDS = 0xF00


def check_boxes(path: str, label: str) -> None:
    """Refuse a file that declares far more samples than it has bytes for.

    Raises:
        VideoError: It does, or its index is compressed, which could hide the same.
    """
    with Path(path).open("rb") as file:
        if file.read(4) in OTHER_FORMATS:
            return
        length = file.seek(0, 2)
        fragments = 0
        for number, (kind, start) in enumerate(_boxes(file, 0, length)):
            if number > MOST_BOXES:
                raise VideoError(f"{label} has more than {MOST_BOXES:,} boxes")
            if kind == b"cmov":
                raise VideoError(f"{label} has a compressed index, which is not read")
            rows = _rows_of_table(file, start, length) if kind == b"stsz" else 0
            if kind == b"trun":
                fragments += _rows_of_run(file, start)
                rows = fragments if fragments > length else 0
            if rows > FREE_ROWS:
                raise VideoError(
                    f"{label} declares more frames than it has bytes for",
                    got=f"{rows:,} frames in {length:,} bytes",
                )


def _rows_of_table(file: BinaryIO, start: int, length: int) -> int:
    """The samples of a track, if they have one size, and the file is too short for them."""
    _, size, count = _numbers(file, start, 3)
    return count if size * count > length else 0


def _rows_of_run(file: BinaryIO, start: int) -> int:
    """The samples of a fragment, if it spends no bytes on each of them."""
    flags, count = _numbers(file, start, 2)
    return 0 if flags & SAMPLE_FIELDS else count


def _boxes(file: BinaryIO, start: int, end: int, depth: int = 0) -> Iterator[tuple[bytes, int]]:
    """Every box and where its content begins, those inside others after the one they are in."""
    while start + 8 <= end:
        size, kind = _header(file, start)
        content = start + 8
        if size == 1:
            size, content = _long_size(file, content), start + 16
        stop = end if size == 0 else start + size
        if stop < content:
            return
        yield kind, content
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

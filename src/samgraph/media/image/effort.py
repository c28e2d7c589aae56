"""Limits on the work of decoding an image, beside its number of pixels.

A file may consist of millions of empty chunks, each a step of a reader written in Python; and a
progressive JPEG may update the same pixels in any number of scans. Real images stay well below
these limits.
"""

import re
from typing import IO, Any

from PIL import Image

from samgraph.errors import ImageError

# A reader reads kilobytes at a time, 255 bytes in a GIF; a header has some hundred small chunks.
FREE_CHUNKS, BYTES_PER_CHUNK = 20_000, 128
# Encoders write ten scans, at the strongest compression twenty. A scan takes 1 to 3 ns per pixel.
FREE_SCANS, MOST_SCANS, MOST_VISITS = 20, 200, 640_000_000

_MARKER = re.compile(rb"\xff+([^\x00\xd0-\xd7\xff])")
_START, _SCAN, _END, _ALONE = 0xD8, 0xDA, 0xD9, 0x01
_BLOCKS = (256, 4096, 65536)


class MeteredFile:
    """A binary file that raises once it is read in more chunks than an image of its size has."""

    def __init__(self, file: IO[bytes], name: str) -> None:
        self._file, self._name = file, name
        self._left = FREE_CHUNKS

    def read(self, size: int = -1) -> bytes:
        """Read as from the file.

        Raises:
            ImageError: There were too many small reads.
        """
        data = self._file.read(size)
        self._left += len(data) // BYTES_PER_CHUNK - 1
        if self._left < 0:
            raise _in_chunks(self._name)
        return data

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def check_scans(image: Image.Image, name: str) -> None:
    """Refuse a JPEG, not decoded yet, with too many scans.

    Raises:
        ImageError: It has more scans than any encoder makes, or many for its size.
    """
    file, pixels = getattr(image, "fp", None), image.width * image.height
    if file is None or image.format not in ("JPEG", "MPO"):
        return
    start = file.tell()
    scans = _count_scans(file, name)
    file.seek(start)
    if scans > MOST_SCANS or (scans > FREE_SCANS and scans * pixels > MOST_VISITS):
        raise ImageError(
            f"{name} has too many scans",
            got=f"more than {MOST_SCANS}" if scans > MOST_SCANS else scans,
            expected=f"at most {FREE_SCANS} of {pixels:,} pixels",
            hint="save it again as a plain JPEG, or as PNG",
        )


def _count_scans(file: IO[bytes], name: str) -> int:
    """The number of scans of a JPEG; counting stops just above the limit."""
    scans = offset = chunks = 0
    while scans <= MOST_SCANS:
        marker, offset = _next_marker(file, offset)
        if marker == _END:
            break
        chunks += 1
        if chunks > FREE_CHUNKS:
            raise _in_chunks(name)
        if marker == _SCAN:
            scans += 1  # its header and its pixels hold no marker
        elif marker not in (_START, _ALONE):
            file.seek(offset)
            offset += max(int.from_bytes(file.read(2)), 2)
    return scans


def _next_marker(file: IO[bytes], offset: int) -> tuple[int, int]:
    """The first marker from `offset` on, and its end; `_END` at the end of the file."""
    blocks = iter(_BLOCKS)
    size = 0
    while True:
        size = next(blocks, size)
        file.seek(offset)
        raw = file.read(size)
        found = _MARKER.search(raw)
        if found:
            return found[1][0], offset + found.end()
        if len(raw) < size:
            return _END, offset
        offset += size - 1 if raw.endswith(b"\xff") else size


def _in_chunks(name: str) -> ImageError:
    return ImageError(f"{name} consists of too many small chunks", hint="save it again as PNG")

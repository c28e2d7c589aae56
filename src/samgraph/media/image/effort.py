"""How much work a picture may cause, beside its number of pixels.

A file may be made of millions of empty pieces, each a step of a reader written in Python; and a
progressive JPEG may paint the same pixels over and over. Real pictures are far from these limits.
"""

import re
from typing import IO, Any

from PIL import Image

from samgraph.errors import ImageError

# A reader takes steps of kilobytes, of 255 bytes in a GIF; a header has some hundred small pieces.
FREE_PIECES, BYTES_A_PIECE = 20_000, 128
# An encoder makes ten scans, one that squeezes hard twenty. Each visits every pixel, in 1 to 3 ns.
FREE_SCANS, MOST_SCANS, MOST_VISITS = 20, 200, 640_000_000

_MARKER = re.compile(rb"\xff+([^\x00\xd0-\xd7\xff])")
_START, _SCAN, _END, _ALONE = 0xD8, 0xDA, 0xD9, 0x01
_BLOCKS = (256, 4096, 65536)


class MeteredFile:
    """A binary file that refuses to be read in more pieces than a picture of its size has."""

    def __init__(self, file: IO[bytes], name: str) -> None:
        self._file, self._name = file, name
        self._left = FREE_PIECES

    def read(self, size: int = -1) -> bytes:
        """As that of the file.

        Raises:
            ImageError: Too little was read too often.
        """
        data = self._file.read(size)
        self._left += len(data) // BYTES_A_PIECE - 1
        if self._left < 0:
            raise _in_pieces(self._name)
        return data

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def check_scans(image: Image.Image, name: str) -> None:
    """Refuse a JPEG that is not decoded yet and paints its pixels too often.

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
            f"{name} is painted in too many scans",
            got=f"more than {MOST_SCANS}" if scans > MOST_SCANS else scans,
            expected=f"at most {FREE_SCANS} of {pixels:,} pixels",
            hint="save it again as a plain JPEG, or as PNG",
        )


def _count_scans(file: IO[bytes], name: str) -> int:
    """The scans of a JPEG up to its end, or just more than are ever allowed."""
    scans = place = pieces = 0
    while scans <= MOST_SCANS:
        marker, place = _next_marker(file, place)
        if marker == _END:
            break
        pieces += 1
        if pieces > FREE_PIECES:
            raise _in_pieces(name)
        if marker == _SCAN:
            scans += 1  # its header and its pixels hold no marker
        elif marker not in (_START, _ALONE):
            file.seek(place)
            place += max(int.from_bytes(file.read(2)), 2)
    return scans


def _next_marker(file: IO[bytes], place: int) -> tuple[int, int]:
    """The first marker from a place on, and where it ends; `_END` at the end of the file."""
    blocks = iter(_BLOCKS)
    size = 0
    while True:
        size = next(blocks, size)
        file.seek(place)
        raw = file.read(size)
        found = _MARKER.search(raw)
        if found:
            return found[1][0], place + found.end()
        if len(raw) < size:
            return _END, place
        place += size - 1 if raw.endswith(b"\xff") else size


def _in_pieces(name: str) -> ImageError:
    return ImageError(f"{name} is made of too many small pieces", hint="save it again as PNG")

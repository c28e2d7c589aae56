"""Reading of JSON and text files of other tools; every fault raises an `ImageError`."""

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from samgraph.errors import ImageError
from samgraph.media.files import write_atomically
from samgraph.media.image.reading import MAX_SIDE
from samgraph.media.mask.rle import MAX_PIXELS
from samgraph.untrusted.files import read_regular
from samgraph.untrusted.text import json_bytes, shown

Kind = TypeVar("Kind")
MAX_BYTES = 1 << 30
# The budget of any file is four masks of the largest size; a pixel takes about 2 ns.
FREE_PIXELS, PIXELS_PER_BYTE = 4 * MAX_PIXELS, 1 << 14


def read_text(path: str | os.PathLike[str]) -> str:
    """The text of a UTF-8 file.

    Raises:
        ImageError: The file is missing, too large, or not text.
    """
    try:
        data = read_regular(path, MAX_BYTES)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ImageError(f"{_label(path)} cannot be read", got=reason.lower()) from error
    if data is None:
        raise ImageError(f"{_label(path)} is too large", expected=f"at most {MAX_BYTES:,} bytes")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ImageError(f"{_label(path)} is not text", expected="UTF-8") from error


def read_json(path: str | os.PathLike[str]) -> Any:
    """The value in a JSON file.

    Raises:
        ImageError: The file is missing or is not JSON.
    """
    text = read_text(path)
    try:
        return json.loads(text)
    except (ValueError, RecursionError, MemoryError) as error:
        raise ImageError(f"{_label(path)} is not JSON", got=shown(str(error))) from error


def write_json(path: str | os.PathLike[str], value: object) -> None:
    """Write a value as JSON, whole or not at all."""
    write_atomically(path, json_bytes(value))


def _label(path: str | os.PathLike[str]) -> str:
    return f"`{shown(os.fspath(path))}`"


class Effort:
    """A budget of pixels for the masks of one file: a constant, and an amount per byte.

    A line of text can describe the largest mask there is, and a page a thousand of them.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._label = _label(path)
        self._left = FREE_PIXELS + PIXELS_PER_BYTE * _length(path)

    def spend(self, pixels: int) -> None:
        """Subtract the cost of a mask from the budget.

        Raises:
            ImageError: The budget is exceeded.
        """
        self._left -= pixels
        if self._left < 0:
            raise ImageError(
                f"the masks of {self._label} cover far more than a file of its length describes",
                hint="split the file, or write its masks run-length encoded",
            )


def _length(path: str | os.PathLike[str]) -> int:
    try:
        return Path(path).stat().st_size
    except (OSError, ValueError):
        return 0


def take(record: object, key: str, kind: type[Kind], where: str) -> Kind:
    """The value at `key`, of the type the format specifies.

    Raises:
        ImageError: It is missing or of another type.
    """
    value = record.get(key) if isinstance(record, Mapping) else None
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise ImageError(
            f"{where} has no usable `{key}`",
            got=type(value).__name__ if value is not None else "nothing",
            expected=kind.__name__,
        )
    return value


def take_number(record: Mapping[str, Any], key: str) -> float | None:
    """The number at `key`; None without one."""
    return as_number(record.get(key))


def as_number(value: object) -> float | None:
    """A finite number as a float; None for other values, and for numbers too large for a float."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def first_point(value: object) -> tuple[float, float] | None:
    """The first of a list of points, as in SAM's automatic masks; None without one."""
    match value:
        case [[x, y], *_]:
            found = as_number(x), as_number(y)
            return None if found[0] is None or found[1] is None else (found[0], found[1])
    return None


def take_integer(record: Mapping[str, Any], key: str) -> int | None:
    """The whole number at `key`; None without one of 64 bits."""
    value = record.get(key)
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    return value if is_whole and abs(value) < 1 << 63 else None  # type: ignore[arg-type]  # an int


def take_size(record: object, height_key: str, width_key: str, where: str) -> tuple[int, int]:
    """Height and width, checked by `check_size`."""
    height, width = take(record, height_key, int, where), take(record, width_key, int, where)
    return check_size(height, width, where)


def check_size(height: int, width: int, where: str) -> tuple[int, int]:
    """Height and width, if an image can have them.

    Raises:
        ImageError: A side is out of range, or there are too many pixels.
    """
    fits = 1 <= height <= MAX_SIDE and 1 <= width <= MAX_SIDE and height * width <= MAX_PIXELS
    if not fits:
        got = shown(f"{str(width)[:40]} x {str(height)[:40]}")
        raise ImageError(f"{where} has an impossible size", got=got)
    return height, width


def corners(points: object, where: str) -> NDArray[np.float64]:
    """A ring [K, 2] from pairs or from a flat list x, y, x, y.

    Raises:
        ImageError: There are fewer than three corners, or they are not finite numbers.
    """
    try:
        ring = np.asarray(points, np.float64)
        ring = ring.reshape(-1, 2) if ring.ndim == 1 else ring
    except (TypeError, ValueError, OverflowError) as error:
        raise ImageError(f"{where} has a polygon that is not made of numbers") from error
    if ring.ndim != 2 or ring.shape[1] != 2 or len(ring) < 3 or not np.isfinite(ring).all():
        raise ImageError(
            f"{where} has a polygon without at least three finite corners",
            got=f"{list(ring.shape)}",
        )
    return ring

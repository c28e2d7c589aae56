"""Reading other programs' files: JSON and text, every fault one clear error."""

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
from samgraph.media.mask.rle import MAX_PIXELS

Kind = TypeVar("Kind")
MAX_BYTES = 1 << 30


def read_text(path: str | os.PathLike[str]) -> str:
    """The text of a UTF-8 file.

    Raises:
        ImageError: The file is missing, too large, or not text.
    """
    try:
        size = Path(path).stat().st_size
        text = Path(path).read_text(encoding="utf-8") if size <= MAX_BYTES else None
    except UnicodeDecodeError as error:
        raise ImageError(f"`{path}` is not text", expected="UTF-8") from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ImageError(f"`{path}` cannot be read", got=reason.lower()) from error
    if text is None:
        raise ImageError(f"`{path}` is too large", expected=f"at most {MAX_BYTES:,} bytes")
    return text


def read_json(path: str | os.PathLike[str]) -> Any:
    """The value in a JSON file.

    Raises:
        ImageError: The file is missing or is not JSON.
    """
    text = read_text(path)
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ImageError(f"`{path}` is not JSON", got=str(error)[:120]) from error


def write_json(path: str | os.PathLike[str], value: object) -> None:
    """Write a value as JSON, whole or not at all."""
    write_atomically(path, json.dumps(value, ensure_ascii=False).encode("utf-8"))


def take(record: object, key: str, kind: type[Kind], where: str) -> Kind:
    """The value at `key`, of the type the format promises.

    Raises:
        ImageError: It is missing or of another type.
    """
    value = record.get(key) if isinstance(record, Mapping) else None
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise ImageError(
            f"{where} has no usable `{key}`",
            got=type(value).__name__ if value is not None else "nothing",
            expected=kind.__name__,
        )
    return value


def take_number(record: Mapping[str, Any], key: str) -> float | None:
    """The number at `key`, or nothing where there is none."""
    value = record.get(key)
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
        return None
    return float(value)


def take_integer(record: Mapping[str, Any], key: str) -> int | None:
    """The whole number at `key`, or nothing where there is none."""
    value = record.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def take_size(record: object, height_key: str, width_key: str, where: str) -> tuple[int, int]:
    """A height and a width, both positive and not too large together."""
    height, width = take(record, height_key, int, where), take(record, width_key, int, where)
    if height < 1 or width < 1 or height * width > MAX_PIXELS:
        raise ImageError(f"{where} has an impossible size", got=f"{width} x {height}")
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

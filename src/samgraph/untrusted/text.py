"""Untrusted text: escaping for messages, strict reading and lossless writing of JSON.

A file name is bytes. Python represents bytes that are not UTF-8 as lone surrogates: they are kept,
written to JSON as its escapes, and escaped in messages.
"""

import json
import math
from typing import Any

from samgraph.errors import printable

LONGEST_SHOWN = 200
LONGEST_NUMBER = 20  # digits: 64 bits and a sign
DEEPEST_JSON = 32


def shown(text: str, longest: int = LONGEST_SHOWN) -> str:
    """`text` on one line of a message: control characters escaped, the middle of long text cut."""
    if len(text) > longest:
        text = f"{text[: longest * 2 // 3]}…{text[-longest // 3 :]}"
    return printable(text).replace("\n", "\\n")


def json_bytes(value: object, *, indent: int | None = None, compact: bool = False) -> bytes:
    """A value as JSON in UTF-8; names that are not UTF-8 survive the round trip."""
    separators = (",", ":") if compact else None
    text = json.dumps(value, ensure_ascii=False, indent=indent, separators=separators)
    return text.encode("utf-8", "backslashreplace")


def strict_json(text: str | bytes, *, most_bytes: int = 1 << 20) -> Any:
    """The value of a short JSON record written by samgraph.

    NaN and Infinity, numbers beyond 64 bits, duplicate keys and deep nesting are refused.

    Raises:
        ValueError: The text is not such JSON, or too long.
    """
    if len(text) > most_bytes:
        raise ValueError(f"{len(text):,} bytes, more than {most_bytes:,}")
    try:
        found = json.loads(
            text if isinstance(text, str) else text.decode("utf-8"),  # else any of UTF-16 and 32
            object_pairs_hook=_unique,
            parse_int=_integer,
            parse_float=_finite,
            parse_constant=_constant,
        )
    except (RecursionError, MemoryError) as error:
        raise ValueError("nested too deeply") from error
    _check_depth(found, DEEPEST_JSON)
    return found


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a duplicate key")
    return found


def _integer(digits: str) -> int:
    if len(digits) > LONGEST_NUMBER:
        raise ValueError(f"a number of {len(digits):,} digits")
    return int(digits)


def _finite(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise ValueError("a number that is too large")
    return value


def _constant(name: str) -> float:
    raise ValueError(f"`{name}`, which is not JSON")


def _check_depth(value: object, left: int) -> None:
    if not isinstance(value, dict | list):
        return
    if not left:
        raise ValueError("nested too deeply")
    for inner in value.values() if isinstance(value, dict) else value:
        _check_depth(inner, left - 1)

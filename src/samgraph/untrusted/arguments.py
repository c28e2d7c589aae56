"""Arguments of callers: truth values, numbers and words, each checked where it is given.

Numbers of numpy count as numbers, its truth values as truth values, and 0 and 1 as either.
"""

from collections.abc import Collection
from math import nan
from numbers import Integral, Real

from samgraph.errors import OptionError, brief

LARGEST = 1e30  # beyond any logit, pixel or megabyte
MOST = 2**53


def flag(name: str, value: object) -> bool:
    """True or false.

    Raises:
        OptionError: It is something else, such as an array with a value for each prompt.
    """
    kind = type(value)
    if kind is bool or (kind.__module__ == "numpy" and kind.__name__ in ("bool", "bool_")):
        return bool(value)
    if isinstance(value, Integral) and value in (0, 1):
        return bool(value)
    raise OptionError(f"`{name}` is true or false", got=_described(value))


def whole(name: str, value: object, least: int = 0, most: int = MOST) -> int:
    """A whole number within a range.

    Raises:
        OptionError: It is something else.
    """
    if not isinstance(value, Integral) or isinstance(value, bool):
        raise OptionError(f"`{name}` must be a whole number", got=_described(value))
    given = int(value)
    if not least <= given <= most:
        expected = f"at least {least}" if given < least else f"at most {most}"
        raise OptionError(f"`{name}` is out of range", got=_described(value), expected=expected)
    return given


def number(name: str, value: object, low: float = -LARGEST, high: float = LARGEST) -> float:
    """A finite number within a range.

    Raises:
        OptionError: It is something else.
    """
    try:
        given = float(value) if isinstance(value, Real) and not isinstance(value, bool) else nan
    except OverflowError:
        given = nan
    if not abs(given) <= LARGEST:
        raise OptionError(f"`{name}` must be a finite number", got=_described(value))
    if not low <= given <= high:
        expected = f"at least {low:g}" if given < low else f"at most {high:g}"
        raise OptionError(f"`{name}` is out of range", got=_described(value), expected=expected)
    return given


def choice(name: str, value: object, choices: Collection[str]) -> str:
    """One of a few words.

    Raises:
        OptionError: It is something else.
    """
    if not isinstance(value, str) or value not in choices:
        expected = ", ".join(choices)
        raise OptionError(f"`{name}` cannot be {_described(value)}", expected=expected)
    return value


def _described(value: object) -> str:
    """A short value as it is written, any other by its type."""
    if isinstance(value, str | Real):
        return f"`{brief(value, 60)}`"
    return "nothing" if value is None else f"a {type(value).__name__}"

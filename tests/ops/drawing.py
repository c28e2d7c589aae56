"""Small draws that the cases of several ops share: lengths, shapes, arrays."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st

from samgraph.graph.types import FLOATS, INTEGERS, Array, DType, numpy_dtype

Draw = st.DrawFn
Shape = tuple[int, ...]

WHOLE: tuple[DType, ...] = ("i64", "i32", "u8", "bool")
_LENGTHS = (2, 3, 1, 4, 5, 7, 16, 0)


def pick(draw: Draw, options: Sequence[Any]) -> Any:
    """One of the options."""
    return draw(st.sampled_from(options))


def number(draw: Draw, least: int, most: int) -> int:
    """A whole number, both ends included."""
    return draw(st.integers(least, most))


def flag(draw: Draw) -> bool:
    """Yes or no."""
    return draw(st.booleans())


def shape(draw: Draw, least: int = 0, most: int = 4, *, empty: bool = True) -> Shape:
    """A shape with `least` to `most` axes; now and then an axis has length 0."""
    rank = number(draw, least, most)
    lengths = [pick(draw, _LENGTHS[:-1]) for _ in range(rank)]
    if rank and empty and number(draw, 0, 15) == 9:
        lengths[number(draw, 0, rank - 1)] = 0
    return tuple(lengths)


def broadcastable(draw: Draw, whole: Shape) -> Shape:
    """A shape that broadcasts to `whole`: axes dropped in front, or of length one."""
    start = number(draw, 0, len(whole)) if flag(draw) else 0
    return tuple(1 if number(draw, 0, 3) == 3 else length for length in whole[start:])


def array(
    draw: Draw, lengths: Sequence[int], dtype: DType, low: float = -3.0, high: float = 3.0
) -> Array:
    """Random elements between `low` and `high`, from a drawn seed."""
    rng = np.random.default_rng(number(draw, 0, 2**32 - 1))
    if dtype in FLOATS:
        return rng.uniform(low, high, lengths).astype(numpy_dtype(dtype))
    if dtype == "bool":
        return rng.integers(0, 2, lengths).astype(bool)
    if dtype == "u8":
        low, high = max(low, 0), max(high, 1)
    return rng.integers(int(low), int(high), lengths, endpoint=True).astype(numpy_dtype(dtype))


def is_whole(dtype: DType) -> bool:
    """Whether the dtype holds integers or bools."""
    return dtype in INTEGERS or dtype == "bool"

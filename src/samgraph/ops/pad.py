"""pad: `before` and `after` more elements along each axis, all equal to `value`."""

import numpy as np

from samgraph.graph.builder import Tensor, emit
from samgraph.graph.registry import expect, register
from samgraph.graph.types import INTEGERS, Array, TensorType, numpy_dtype

Counts = tuple[int, ...]


def pad(x: Tensor, before: Counts, after: Counts, value: float = 0.0) -> Tensor:
    """More elements along each axis, all equal to `value`."""
    return emit("pad", x, before=before, after=after, value=float(value))


def infer(x: TensorType, *, before: Counts, after: Counts, value: float) -> TensorType:
    """Every axis grows by its two counts."""
    ok = len(before) == len(after) == x.rank and min((0, *before, *after)) >= 0
    got = f"{before}, {after} for {x}"
    expect(ok, "pad", "two counts for each axis", got=got, want="counts of at least 0")
    expect(x.dtype != "bool", "pad", "needs numbers", got=x, want="not bool")
    if x.dtype in INTEGERS:
        limits = np.iinfo(numpy_dtype(x.dtype))
        ok = float(value).is_integer() and limits.min <= value <= limits.max
        expect(ok, "pad", f"not a number of {x.dtype}", got=value, want="a whole number")
    return x.reshaped(b + n + a for b, n, a in zip(before, x.shape, after, strict=True))


def reference(x: Array, *, before: Counts, after: Counts, value: float) -> Array:
    """A full tensor with `x` inside."""
    shape = [b + n + a for b, n, a in zip(before, x.shape, after, strict=True)]
    y = np.full(shape, value, x.dtype)
    y[tuple(slice(b, b + n) for b, n in zip(before, x.shape, strict=True))] = x
    return y


register("pad", infer=infer, reference=reference, meaning=__doc__)

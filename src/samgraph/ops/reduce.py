"""reduce: a reduction over some axes.

`how` is sum, mean, max, min or argmax; `axes` may be any, adjacent or not. argmax gives, as
i64, the index of the first largest element in the named axes flattened in the order given.
"""

import math
from collections.abc import Callable

import numpy as np

from samgraph.graph.builder import Tensor, emit
from samgraph.graph.registry import expect, register
from samgraph.graph.types import Array, TensorType
from samgraph.ops.rules import axes_index, widen

HOW = ("sum", "mean", "max", "min", "argmax")


def reduce(x: Tensor, axes: tuple[int, ...], *, how: str, keep: bool = False) -> Tensor:
    """Reduce over `axes`; with `keep` they stay, of length one."""
    return emit("reduce", x, axes=axes, how=how, keep=keep)


def infer(x: TensorType, *, axes: tuple[int, ...], how: str, keep: bool) -> TensorType:
    """The named axes disappear, or become 1."""
    expect(how in HOW, "reduce", "no such way", got=how, want=", ".join(HOW))
    expect(x.dtype != "bool", "reduce", "needs numbers", got=x, want="not bool")
    gone = set(axes_index("reduce", axes, x.rank))
    ok = how == "sum" or all(x.shape[axis] != 0 for axis in gone)
    expect(ok, "reduce", f"{how} of nothing", got=x, want="at least one element")
    expect(how != "mean" or x.dtype[0] in "fb", "reduce", "mean needs floats", got=x, want="f32")
    shape = [1 if i in gone else dim for i, dim in enumerate(x.shape) if keep or i not in gone]
    return TensorType(tuple(shape), "i64" if how == "argmax" else x.dtype)


def reference(x: Array, *, axes: tuple[int, ...], how: str, keep: bool) -> Array:
    """Numpy's own, in float32 at least."""
    axes = tuple(axis % x.ndim for axis in axes)
    if how == "argmax":
        return _argmax(x, axes, keep)
    wide = widen(x)
    total: Callable[..., Array] = getattr(wide, how)
    return np.asarray(total(axis=axes, keepdims=keep)).astype(x.dtype)


def _argmax(x: Array, axes: tuple[int, ...], keep: bool) -> Array:
    left = [axis for axis in range(x.ndim) if axis not in axes]
    count = math.prod(x.shape[axis] for axis in axes)
    moved = x.transpose(*left, *axes).reshape(*(x.shape[axis] for axis in left), count)
    y = np.asarray(moved.argmax(-1), np.int64)
    return y.reshape([1 if i in axes else n for i, n in enumerate(x.shape)]) if keep else y


register("reduce", infer=infer, reference=reference, meaning=__doc__)

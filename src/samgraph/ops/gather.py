"""gather: take elements of `x` along one axis, at the positions in an integer tensor.

    y[..., i..., ...] = x[..., index[i...], ...]

The first `batch` axes of `x` and `index` go together: with batch=1, row n of `index` picks from
row n of `x`. A negative index counts from the end; one outside the axis gives zeros.
"""

import numpy as np

from samgraph.graph.builder import Tensor, emit
from samgraph.graph.registry import expect, register
from samgraph.graph.types import INTEGERS, Array, TensorType
from samgraph.ops.rules import axis_index


def gather(x: Tensor, index: Tensor | Array, axis: int, *, batch: int = 0) -> Tensor:
    """Elements of `x` along `axis` at the positions in `index`."""
    return emit("gather", x, index, axis=axis, batch=batch)


def infer(x: TensorType, index: TensorType, *, axis: int, batch: int) -> TensorType:
    """The axis is replaced by the axes of `index` after its batch axes."""
    ok = index.dtype in INTEGERS and index.dtype != "u8"
    expect(ok, "gather", "needs an integer index", got=index, want="i64 or i32")
    position = axis_index("gather", axis, x.rank)
    expect(x.shape[position] != 0, "gather", "nothing to take", got=x, want="a longer axis")
    ok = 0 <= batch <= position and batch <= index.rank and x.shape[:batch] == index.shape[:batch]
    want = f"the same first {batch} lengths"
    expect(ok, "gather", "batch axes do not fit", got=f"{x}, {index}", want=want)
    return x.reshaped((*x.shape[:position], *index.shape[batch:], *x.shape[position + 1 :]))


def reference(x: Array, index: Array, *, axis: int, batch: int) -> Array:
    """Each batch by itself."""
    axis %= x.ndim
    if batch:
        parts = [
            reference(a, i, axis=axis - 1, batch=batch - 1) for a, i in zip(x, index, strict=True)
        ]
        shape = (*x.shape[:axis], *index.shape[batch:], *x.shape[axis + 1 :])
        return np.stack(parts) if parts else np.zeros(shape, x.dtype)
    length = x.shape[axis]
    positions = np.where(index < 0, index + length, index)
    outside = (positions < 0) | (positions >= length)
    y = np.take(x, np.where(outside, 0, positions), axis)
    mask = outside.reshape((*(1,) * axis, *index.shape, *(1,) * (x.ndim - axis - 1)))
    return np.where(mask, x.dtype.type(0), y)


register("gather", infer=infer, reference=reference, meaning=__doc__)

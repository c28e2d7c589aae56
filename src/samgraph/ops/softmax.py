"""softmax: exponentials along one axis, divided by their sum; the maximum is subtracted first."""

import numpy as np

from samgraph.graph.builder import Tensor, emit
from samgraph.graph.registry import register
from samgraph.graph.types import Array, TensorType
from samgraph.ops.rules import axis_index, need_float, widen


def softmax(x: Tensor, axis: int = -1) -> Tensor:
    """Exponentials along `axis`, divided by their sum."""
    return emit("softmax", x, axis=axis)


def infer(x: TensorType, *, axis: int) -> TensorType:
    """The type does not change."""
    need_float("softmax", x)
    axis_index("softmax", axis, x.rank)
    return x


def reference(x: Array, *, axis: int) -> Array:
    """Shifted by the largest element, so that nothing overflows."""
    wide = widen(x)
    powers = np.exp(wide - wide.max(axis, keepdims=True, initial=-np.inf))
    y: Array = powers / powers.sum(axis, keepdims=True)
    return y.astype(x.dtype)


register("softmax", infer=infer, reference=reference, meaning=__doc__)

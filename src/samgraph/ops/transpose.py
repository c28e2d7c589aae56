"""transpose: the axes in another order; axis i of the result is axis ``axes[i]`` of `x`."""

import numpy as np

from samgraph.graph.builder import Tensor, emit
from samgraph.graph.registry import expect, register
from samgraph.graph.types import Array, TensorType
from samgraph.ops.rules import axes_index


def transpose(x: Tensor, *axes: int) -> Tensor:
    """The axes in another order."""
    return emit("transpose", x, axes=tuple(axes))


def infer(x: TensorType, *, axes: tuple[int, ...]) -> TensorType:
    """Every axis once."""
    order = axes_index("transpose", axes, x.rank)
    expect(len(order) == x.rank, "transpose", "every axis once", got=axes, want=f"{x.rank} axes")
    return x.reshaped(x.shape[axis] for axis in order)


def reference(x: Array, *, axes: tuple[int, ...]) -> Array:
    """Numpy's own."""
    return np.asarray(x.transpose(axes), order="C")


register("transpose", infer=infer, reference=reference, meaning=__doc__)

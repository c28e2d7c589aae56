"""expand: repeat axes of length one, and add axes in front, until the tensor has `shape`."""

import numpy as np

from samgraph.graph.builder import Tensor, emit
from samgraph.graph.dims import Dim
from samgraph.graph.registry import expect, register
from samgraph.graph.types import Array, TensorType
from samgraph.ops.rules import broadcast


def expand(x: Tensor, *shape: Dim) -> Tensor:
    """The tensor repeated to `shape`."""
    return x if x.shape == shape else emit("expand", x, shape=tuple(shape))


def infer(x: TensorType, *, shape: tuple[Dim, ...]) -> TensorType:
    """The shape asked for, if broadcasting can give it."""
    wanted = x.reshaped(shape)
    ok = x.rank <= wanted.rank and broadcast("expand", x, wanted) == wanted.shape
    expect(ok, "expand", "cannot become this shape", got=x, want=wanted)
    return wanted


def reference(x: Array, *, shape: tuple[int, ...]) -> Array:
    """Numpy's own."""
    return np.array(np.broadcast_to(x, shape), order="C")


register("expand", infer=infer, reference=reference, meaning=__doc__)

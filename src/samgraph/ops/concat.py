"""concat: tensors one after another along one axis; all other lengths agree."""

from collections.abc import Sequence

import numpy as np

from samgraph.errors import ShapeError
from samgraph.graph.builder import Tensor, emit
from samgraph.graph.dims import Dim
from samgraph.graph.registry import expect, register
from samgraph.graph.types import Array, TensorType
from samgraph.ops.rules import axis_index, same_dtype


def concat(tensors: Sequence[Tensor], axis: int) -> Tensor:
    """The tensors one after another along `axis`."""
    return emit("concat", *tensors, axis=axis)


def infer(*tensors: TensorType, axis: int) -> TensorType:
    """Lengths add up along the axis."""
    if not tensors:
        raise ShapeError("`concat` of nothing", expected="at least one tensor")
    same_dtype("concat", *tensors)
    first = tensors[0]
    position = axis_index("concat", axis, first.rank)
    rest = [(*t.shape[:position], *t.shape[position + 1 :]) for t in tensors]
    fits = all(t.rank == first.rank for t in tensors) and len(set(rest)) == 1
    shapes = ", ".join(map(str, tensors))
    want = f"equal lengths but for axis {axis}"
    expect(fits, "concat", "shapes do not fit", got=shapes, want=want)
    total: Dim = 0
    for tensor in tensors:
        total = total + tensor.shape[position]
    return first.reshaped((*first.shape[:position], total, *first.shape[position + 1 :]))


def reference(*tensors: Array, axis: int) -> Array:
    """Numpy's own."""
    return np.concatenate(tensors, axis)


register("concat", infer=infer, reference=reference, meaning=__doc__)

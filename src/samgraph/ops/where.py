"""where: an element of `a` where `condition` holds, else of `b`. All three broadcast."""

import numpy as np

from samgraph.graph.builder import Operand, Tensor
from samgraph.graph.registry import expect, register
from samgraph.graph.types import Array, DType, TensorType
from samgraph.ops.rules import broadcast, same_dtype


def where(condition: Tensor, a: Operand, b: Operand) -> Tensor:
    """An element of `a` where `condition` holds, else of `b`."""
    like: DType = next((item.dtype for item in (a, b) if isinstance(item, Tensor)), "f32")
    return condition.builder.emit("where", condition, a, b, like=like)


def infer(condition: TensorType, a: TensorType, b: TensorType) -> TensorType:
    """The dtype of `a` and `b`, the common shape of all three."""
    expect(condition.dtype == "bool", "where", "needs a bool condition", got=condition, want="bool")
    same_dtype("where", a, b)
    return a.reshaped(broadcast("where", condition, a, b))


def reference(condition: Array, a: Array, b: Array) -> Array:
    """Element by element."""
    y: Array = np.where(condition, a, b)
    return y


register("where", infer=infer, reference=reference, meaning=__doc__)

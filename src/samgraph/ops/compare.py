"""compare: a bool for each pair of elements; `how` is eq, ne, lt, le, gt or ge."""

import operator

from samgraph.graph.builder import Operand, Tensor, emit
from samgraph.graph.registry import expect, register
from samgraph.graph.types import Array, TensorType
from samgraph.ops.rules import broadcast, same_dtype

HOW = {name: getattr(operator, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")}


def compare(a: Operand, b: Operand, how: str) -> Tensor:
    """A bool for each pair of elements."""
    return emit("compare", a, b, how=how)


def infer(a: TensorType, b: TensorType, *, how: str) -> TensorType:
    """Two tensors of one dtype give bools; shapes broadcast."""
    same_dtype("compare", a, b)
    expect(how in HOW, "compare", "no such comparison", got=how, want=", ".join(HOW))
    return TensorType(broadcast("compare", a, b), "bool")


def reference(a: Array, b: Array, *, how: str) -> Array:
    """Element by element."""
    y: Array = HOW[how](a, b)
    return y


register("compare", infer=infer, reference=reference, meaning=__doc__)

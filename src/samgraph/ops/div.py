"""div: the first tensor over the second, floating point only. Shapes broadcast as in numpy."""

from samgraph.graph.builder import Operand, Tensor, emit
from samgraph.graph.registry import register
from samgraph.graph.types import Array, TensorType
from samgraph.ops.rules import broadcast, need_float


def div(a: Operand, b: Operand) -> Tensor:
    """The first tensor over the second."""
    return emit("div", a, b)


def infer(a: TensorType, b: TensorType) -> TensorType:
    """One float dtype; shapes broadcast."""
    need_float("div", a, b)
    return a.reshaped(broadcast("div", a, b))


def reference(a: Array, b: Array) -> Array:
    """Element by element."""
    y: Array = a / b
    return y


register("div", infer=infer, reference=reference, meaning=__doc__)

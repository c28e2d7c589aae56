"""mul: the product of two tensors, element by element. Shapes broadcast as in numpy."""

from samgraph.graph.builder import Operand, Tensor, emit
from samgraph.graph.registry import register
from samgraph.graph.types import Array
from samgraph.ops.rules import arithmetic


def mul(a: Operand, b: Operand) -> Tensor:
    """The product of two tensors, element by element."""
    return emit("mul", a, b)


def reference(a: Array, b: Array) -> Array:
    """Element by element."""
    y: Array = a * b
    return y


register("mul", infer=arithmetic("mul"), reference=reference, meaning=__doc__)

"""add: the sum of two tensors. Shapes broadcast as in numpy."""

from samgraph.graph.builder import Operand, Tensor, emit
from samgraph.graph.registry import register
from samgraph.graph.types import Array
from samgraph.ops.rules import arithmetic


def add(a: Operand, b: Operand) -> Tensor:
    """The sum of two tensors."""
    return emit("add", a, b)


def reference(a: Array, b: Array) -> Array:
    """Element by element."""
    y: Array = a + b
    return y


register("add", infer=arithmetic("add"), reference=reference, meaning=__doc__)

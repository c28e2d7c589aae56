"""sub: the first tensor less the second. Shapes broadcast as in numpy."""

from samgraph.graph.builder import Operand, Tensor, emit
from samgraph.graph.registry import register
from samgraph.graph.types import Array
from samgraph.ops.rules import arithmetic


def sub(a: Operand, b: Operand) -> Tensor:
    """The first tensor less the second."""
    return emit("sub", a, b)


def reference(a: Array, b: Array) -> Array:
    """Element by element."""
    y: Array = a - b
    return y


register("sub", infer=arithmetic("sub"), reference=reference, meaning=__doc__)

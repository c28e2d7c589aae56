"""minimum: the smaller of two tensors, element by element. Shapes broadcast as in numpy."""

import numpy as np

from samgraph.graph.builder import Operand, Tensor, emit
from samgraph.graph.registry import register
from samgraph.graph.types import Array
from samgraph.ops.rules import arithmetic


def minimum(a: Operand, b: Operand) -> Tensor:
    """The smaller of two tensors, element by element."""
    return emit("minimum", a, b)


def reference(a: Array, b: Array) -> Array:
    """Element by element."""
    y: Array = np.minimum(a, b)
    return y


register("minimum", infer=arithmetic("minimum"), reference=reference, meaning=__doc__)

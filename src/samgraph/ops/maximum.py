"""maximum: the larger of two tensors, element by element. Shapes broadcast as in numpy."""

import numpy as np

from samgraph.graph.builder import Operand, Tensor, emit
from samgraph.graph.registry import register
from samgraph.graph.types import Array
from samgraph.ops.rules import arithmetic


def maximum(a: Operand, b: Operand) -> Tensor:
    """The larger of two tensors, element by element."""
    return emit("maximum", a, b)


def reference(a: Array, b: Array) -> Array:
    """Element by element."""
    y: Array = np.maximum(a, b)
    return y


register("maximum", infer=arithmetic("maximum"), reference=reference, meaning=__doc__)

"""relu: the larger of each element and zero."""

import numpy as np

from samgraph.graph.builder import Tensor, emit
from samgraph.graph.registry import register
from samgraph.graph.types import Array
from samgraph.ops.rules import float_function


def relu(x: Tensor) -> Tensor:
    """The larger of each element and zero."""
    return emit("relu", x)


def reference(x: Array) -> Array:
    """Applied to each element."""
    y: Array = np.maximum(x, x.dtype.type(0))
    return y


register("relu", infer=float_function("relu"), reference=reference, meaning=__doc__)

"""cos: the cosine of each element, in radians."""

import numpy as np

from samgraph.graph.builder import Tensor, emit
from samgraph.graph.registry import register
from samgraph.graph.types import Array
from samgraph.ops.rules import float_function, widen


def cos(x: Tensor) -> Tensor:
    """The cosine of each element, in radians."""
    return emit("cos", x)


def reference(x: Array) -> Array:
    """Applied to each element."""
    y: Array = np.cos(widen(x)).astype(x.dtype)
    return y


register("cos", infer=float_function("cos"), reference=reference, meaning=__doc__)

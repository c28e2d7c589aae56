"""log: the natural logarithm of each element."""

import numpy as np

from samgraph.graph.builder import Tensor, emit
from samgraph.graph.registry import register
from samgraph.graph.types import Array
from samgraph.ops.rules import float_function, widen


def log(x: Tensor) -> Tensor:
    """The natural logarithm of each element."""
    return emit("log", x)


def reference(x: Array) -> Array:
    """Applied to each element."""
    y: Array = np.log(widen(x)).astype(x.dtype)
    return y


register("log", infer=float_function("log"), reference=reference, meaning=__doc__)

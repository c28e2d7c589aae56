"""exp: e to the power of each element."""

import numpy as np

from samgraph.graph.builder import Tensor, emit
from samgraph.graph.registry import register
from samgraph.graph.types import Array
from samgraph.ops.rules import float_function, widen


def exp(x: Tensor) -> Tensor:
    """E to the power of each element."""
    return emit("exp", x)


def reference(x: Array) -> Array:
    """Applied to each element."""
    y: Array = np.exp(widen(x)).astype(x.dtype)
    return y


register("exp", infer=float_function("exp"), reference=reference, meaning=__doc__)

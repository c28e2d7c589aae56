"""sin: the sine of each element, in radians."""

import numpy as np

from samgraph.graph.builder import Tensor, emit
from samgraph.graph.registry import register
from samgraph.graph.types import Array
from samgraph.ops.rules import float_function, widen


def sin(x: Tensor) -> Tensor:
    """The sine of each element, in radians."""
    return emit("sin", x)


def reference(x: Array) -> Array:
    """Applied to each element."""
    y: Array = np.sin(widen(x)).astype(x.dtype)
    return y


register("sin", infer=float_function("sin"), reference=reference, meaning=__doc__)

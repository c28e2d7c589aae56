"""sqrt: the square root of each element."""

import numpy as np

from samgraph.graph.builder import Tensor, emit
from samgraph.graph.registry import register
from samgraph.graph.types import Array
from samgraph.ops.rules import float_function, widen


def sqrt(x: Tensor) -> Tensor:
    """The square root of each element."""
    return emit("sqrt", x)


def reference(x: Array) -> Array:
    """Applied to each element."""
    y: Array = np.sqrt(widen(x)).astype(x.dtype)
    return y


register("sqrt", infer=float_function("sqrt"), reference=reference, meaning=__doc__)

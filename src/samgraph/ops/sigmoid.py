"""sigmoid: ``1 / (1 + exp(-x))``, element by element."""

import numpy as np

from samgraph.graph.builder import Tensor, emit
from samgraph.graph.registry import register
from samgraph.graph.types import Array
from samgraph.ops.rules import float_function, widen


def sigmoid(x: Tensor) -> Tensor:
    """``1 / (1 + exp(-x))``, element by element."""
    return emit("sigmoid", x)


def reference(x: Array) -> Array:
    """Through exp(-|x|), which cannot overflow."""
    wide = widen(x)
    small = np.exp(-np.abs(wide))
    y: Array = np.where(wide >= 0, 1 / (1 + small), small / (1 + small))
    return y.astype(x.dtype)


register("sigmoid", infer=float_function("sigmoid"), reference=reference, meaning=__doc__)

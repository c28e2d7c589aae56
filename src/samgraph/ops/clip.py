"""clip: each element moved into ``[low, high]``."""

import numpy as np

from samgraph.graph.builder import Tensor, emit
from samgraph.graph.registry import expect, register
from samgraph.graph.types import Array, TensorType
from samgraph.ops.rules import need_float


def clip(x: Tensor, low: float, high: float) -> Tensor:
    """Each element moved into ``[low, high]``."""
    return emit("clip", x, low=float(low), high=float(high))


def infer(x: TensorType, *, low: float, high: float) -> TensorType:
    """The type does not change."""
    need_float("clip", x)
    expect(low <= high, "clip", "`low` is above `high`", got=f"{low}, {high}", want="low <= high")
    return x


def reference(x: Array, *, low: float, high: float) -> Array:
    """Element by element."""
    y: Array = np.clip(x, x.dtype.type(low), x.dtype.type(high))
    return y.astype(x.dtype)


register("clip", infer=infer, reference=reference, meaning=__doc__)

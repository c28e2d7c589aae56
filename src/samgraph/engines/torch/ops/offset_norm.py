"""offset_norm: rows with an offset added, then a layer norm.

    y = (x + offset - mean) / sqrt(variance + eps) * scale + shift

x [..., C], offset, scale and shift [C]. Scale and shift may be left out together: then they are in
the weights of the next layer.
"""

import numpy as np

from samgraph.graph.registry import ENGINE_OPS, OPS, expect, register
from samgraph.graph.types import Array, TensorType
from samgraph.ops.rules import widen


def infer(
    x: TensorType,
    offset: TensorType,
    scale: TensorType | None = None,
    shift: TensorType | None = None,
    *,
    eps: float,
) -> TensorType:
    """The type of `x`."""
    both = (scale is None) == (shift is None)
    expect(both, "offset_norm", "scale and shift go together", got=scale, want="both or none")
    OPS["layer_norm"].infer(x, offset, offset, eps=eps)
    return OPS["layer_norm"].infer(x, scale or offset, shift or offset, eps=eps)


def reference(
    x: Array, offset: Array, scale: Array | None = None, shift: Array | None = None, *, eps: float
) -> Array:
    """The sum, then a layer norm."""
    wide = widen(x) + widen(offset)
    one, zero = np.ones(x.shape[-1], wide.dtype), np.zeros(x.shape[-1], wide.dtype)
    factors = one if scale is None else widen(scale), zero if shift is None else widen(shift)
    result: Array = OPS["layer_norm"].reference(wide, *factors, eps=eps)
    return result.astype(x.dtype)


register("offset_norm", infer=infer, reference=reference, meaning=__doc__, table=ENGINE_OPS)

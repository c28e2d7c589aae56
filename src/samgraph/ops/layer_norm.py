"""layer_norm: make the last axis zero-mean and unit-variance, then scale and shift it.

    y = (x - mean(x)) / sqrt(var(x) + eps) * scale + shift

Mean and variance are over the last axis, in float32 at least whatever the dtype of `x`, the
variance in a second pass over the centred values; it is the biased one (divide by n).
"""

import numpy as np

from samgraph.graph.builder import Tensor, emit
from samgraph.graph.registry import expect, register
from samgraph.graph.types import Array, TensorType
from samgraph.ops.rules import need_float, widen


def layer_norm(x: Tensor, scale: Tensor, shift: Tensor, *, eps: float) -> Tensor:
    """Normalisation over the last axis with learned scale and shift."""
    return emit("layer_norm", x, scale, shift, eps=eps)


def infer(x: TensorType, scale: TensorType, shift: TensorType, *, eps: float) -> TensorType:
    """The result has the type of `x`."""
    need_float("layer_norm", x, scale, shift)
    ok = x.rank >= 1 and x.shape[-1] != 0
    expect(ok, "layer_norm", "needs channels", got=x, want="[..., C]")
    channels = x.reshaped(x.shape[-1:])
    expect(scale == channels, "layer_norm", "one scale per channel", got=scale, want=channels)
    expect(shift == channels, "layer_norm", "one shift per channel", got=shift, want=channels)
    expect(eps > 0, "layer_norm", "`eps` must be positive", got=eps, want="> 0")
    return x


def reference(x: Array, scale: Array, shift: Array, *, eps: float) -> Array:
    """Slow, obvious, and the definition of right."""
    wide = widen(x)
    centred = wide - wide.mean(-1, keepdims=True)
    variance = (centred * centred).mean(-1, keepdims=True)
    y: Array = centred / np.sqrt(variance + wide.dtype.type(eps)) * widen(scale) + widen(shift)
    return y.astype(x.dtype)


register("layer_norm", infer=infer, reference=reference, meaning=__doc__)

"""layer_norm_2d: layer_norm over the channels of an image [N, C, H, W], at each pixel."""

import numpy as np

from samgraph.graph.builder import Tensor, emit
from samgraph.graph.registry import expect, register
from samgraph.graph.types import Array, TensorType
from samgraph.ops.layer_norm import reference as normalise_last
from samgraph.ops.rules import need_float, need_rank


def layer_norm_2d(x: Tensor, scale: Tensor, shift: Tensor, *, eps: float) -> Tensor:
    """Normalisation over the channels of [N, C, H, W]."""
    return emit("layer_norm_2d", x, scale, shift, eps=eps)


def infer(x: TensorType, scale: TensorType, shift: TensorType, *, eps: float) -> TensorType:
    """The result has the type of `x`."""
    need_float("layer_norm_2d", x, scale, shift)
    need_rank("layer_norm_2d", "x", x, 4)
    expect(x.shape[1] != 0, "layer_norm_2d", "needs channels", got=x, want="[N, C, H, W]")
    channels = x.reshaped(x.shape[1:2])
    expect(scale == channels, "layer_norm_2d", "one scale per channel", got=scale, want=channels)
    expect(shift == channels, "layer_norm_2d", "one shift per channel", got=shift, want=channels)
    expect(eps > 0, "layer_norm_2d", "`eps` must be positive", got=eps, want="> 0")
    return x


def reference(x: Array, scale: Array, shift: Array, *, eps: float) -> Array:
    """Move the channels last, normalise, move them back."""
    y = normalise_last(np.moveaxis(x, 1, -1), scale, shift, eps=eps)
    return np.ascontiguousarray(np.moveaxis(y, -1, 1))


register("layer_norm_2d", infer=infer, reference=reference, meaning=__doc__)

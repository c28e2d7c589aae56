"""conv_norm: a convolution, a norm over its channels at each pixel, and an activation.

    y = activation(layer_norm_2d(conv2d(x, weight, bias), scale, shift))

x [N, c, H, W]; weight [C, k*k*c], its columns tap by tap, the channels of a tap together; or,
for a depthwise convolution, [k*k, C]. Gives [N, C, H', W'].
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from samgraph.graph.dims import Dim, product
from samgraph.graph.registry import ENGINE_OPS, OPS, expect, register
from samgraph.graph.types import Array, TensorType
from samgraph.ops.rules import need_float, widen


@dataclass(frozen=True, slots=True)
class ConvNormAttributes:
    """Side of the kernel, stride and padding of both axes; `activation` is none or gelu."""

    kernel: int
    stride: int
    padding: int
    depthwise: bool
    eps: float
    activation: str = "none"

    @property
    def pairs(self) -> dict[str, tuple[int, int]]:
        """Stride and padding as `conv2d` takes them."""
        return {"stride": (self.stride, self.stride), "padding": (self.padding, self.padding)}


def infer(
    x: TensorType,
    weight: TensorType,
    bias: TensorType,
    scale: TensorType,
    shift: TensorType,
    **attributes: Any,
) -> TensorType:
    """The type of the convolution."""
    need_float("conv_norm", x, weight, bias, scale, shift)
    at = ConvNormAttributes(**attributes)
    ok = x.rank == 4 and isinstance(x.shape[1], int) and at.kernel >= 1
    expect(ok, "conv_norm", "needs an image", got=x, want="[N, c, H, W]")
    channels = int(str(x.shape[1]))
    taps = at.kernel**2
    want = (taps, channels) if at.depthwise else (bias.shape[0], taps * channels)
    expect(weight.shape == want, "conv_norm", "the weight does not fit", got=weight, want=want)
    ok = at.activation in ("none", "gelu")
    expect(ok, "conv_norm", "no such activation", got=at.activation, want="none, gelu")
    groups = channels if at.depthwise else 1
    kernels = weight.reshaped((bias.shape[0], channels // groups, at.kernel, at.kernel))
    y = OPS["conv2d"].infer(x, kernels, bias, **at.pairs, groups=groups)
    return OPS["layer_norm_2d"].infer(y, scale, shift, eps=at.eps)


def reference(
    x: Array,
    weight: Array,
    bias: Array,
    scale: Array,
    shift: Array,
    **attributes: Any,
) -> Array:
    """One op after another."""
    at = ConvNormAttributes(**attributes)
    rows = widen(weight).T if at.depthwise else widen(weight)
    kernels = rows.reshape(len(rows), at.kernel, at.kernel, -1).transpose(0, 3, 1, 2)
    groups = x.shape[1] if at.depthwise else 1
    y = OPS["conv2d"].reference(
        widen(x), np.ascontiguousarray(kernels), widen(bias), **at.pairs, groups=groups
    )
    y = OPS["layer_norm_2d"].reference(y, widen(scale), widen(shift), eps=at.eps)
    return (OPS["gelu"].reference(y) if at.activation == "gelu" else y).astype(x.dtype)


def work(result: TensorType, x: TensorType, weight: TensorType, *_: TensorType,
         depthwise: bool, **__: object) -> Dim:  # fmt: skip
    """One multiply-add for each output and tap."""
    return product(result.shape) * weight.shape[0 if depthwise else 1]


register(
    "conv_norm",
    infer=infer,
    reference=reference,
    work=work,
    meaning=__doc__,
    attributes=ConvNormAttributes,
    table=ENGINE_OPS,
)

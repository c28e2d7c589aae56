"""conv_norm: a convolution, a norm over its channels at each pixel, and an activation.

    y = activation(layer_norm_2d(conv2d(x, weight, bias), scale, shift))

x [N, c, H, W]; weight [C, k*k*c], its columns tap by tap, the channels of a tap together; or,
where each channel has a kernel of its own (depthwise), [k*k, C]. Activation is none or gelu.
Gives [N, C, H', W'].
"""

import numpy as np

from samgraph.graph.dims import Dim, product
from samgraph.graph.registry import ENGINE_OPS, OPS, expect, register
from samgraph.graph.types import Array, TensorType
from samgraph.ops.rules import need_float, widen

Pair = tuple[int, int]


def infer(
    x: TensorType,
    weight: TensorType,
    bias: TensorType,
    scale: TensorType,
    shift: TensorType,
    *,
    kernel: int,
    stride: int,
    padding: int,
    depthwise: bool,
    eps: float,
    activation: str = "none",
) -> TensorType:
    """The type of the convolution."""
    need_float("conv_norm", x, weight, bias, scale, shift)
    ok = x.rank == 4 and isinstance(x.shape[1], int) and kernel >= 1
    expect(ok, "conv_norm", "needs an image", got=x, want="[N, c, H, W]")
    channels = int(str(x.shape[1]))
    wide = 1 if depthwise else channels
    want = (kernel**2, channels) if depthwise else (bias.shape[0], kernel**2 * channels)
    expect(weight.shape == want, "conv_norm", "the weight does not fit", got=weight, want=want)
    ok = activation in ("none", "gelu")
    expect(ok, "conv_norm", "no such activation", got=activation, want="none, gelu")
    taps = weight.reshaped((bias.shape[0], wide, kernel, kernel))
    groups = channels if depthwise else 1
    y = OPS["conv2d"].infer(
        x, taps, bias, stride=(stride, stride), padding=(padding, padding), groups=groups
    )
    return OPS["layer_norm_2d"].infer(y, scale, shift, eps=eps)


def reference(
    x: Array,
    weight: Array,
    bias: Array,
    scale: Array,
    shift: Array,
    *,
    kernel: int,
    stride: int,
    padding: int,
    depthwise: bool,
    eps: float,
    activation: str = "none",
) -> Array:
    """One op after another."""
    rows = widen(weight).T if depthwise else widen(weight)
    taps = rows.reshape(len(rows), kernel, kernel, -1).transpose(0, 3, 1, 2)
    y = OPS["conv2d"].reference(
        widen(x),
        np.ascontiguousarray(taps),
        widen(bias),
        stride=(stride, stride),
        padding=(padding, padding),
        groups=x.shape[1] if depthwise else 1,
    )
    y = OPS["layer_norm_2d"].reference(y, widen(scale), widen(shift), eps=eps)
    return (OPS["gelu"].reference(y) if activation == "gelu" else y).astype(x.dtype)


def work(result: TensorType, x: TensorType, weight: TensorType, *_: TensorType,
         depthwise: bool, **__: object) -> Dim:  # fmt: skip
    """One multiply-add for each output and tap."""
    return product(result.shape) * weight.shape[0 if depthwise else 1]


register(
    "conv_norm", infer=infer, reference=reference, work=work, meaning=__doc__, table=ENGINE_OPS
)

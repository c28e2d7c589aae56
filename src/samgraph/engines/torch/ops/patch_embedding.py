"""patch_embedding: a strided convolution of an image, channels-last, plus position embeddings.

    y = transpose(conv2d(image, weight) + bias) + positions

image [B, c, H, W]; weight [C, c*k*8], each row of a k x k kernel with zeros in front, up to eight;
positions [1, H', W', C] -> [B, H', W', C].
"""

import numpy as np

from samgraph.graph.dims import Dim, product
from samgraph.graph.registry import ENGINE_OPS, OPS, expect, register
from samgraph.graph.types import Array, TensorType
from samgraph.ops.rules import need_float, widen

ROW = 8  # a row of the kernel, padded


def infer(
    image: TensorType,
    weight: TensorType,
    bias: TensorType,
    positions: TensorType,
    *,
    kernel: int,
    stride: int,
    padding: int,
) -> TensorType:
    """The convolution's type channels-last."""
    need_float("patch_embedding", image, weight, bias, positions)
    ok = image.rank == 4 and isinstance(image.shape[1], int) and 1 <= kernel <= ROW
    expect(ok, "patch_embedding", "needs an image", got=image, want="[B, c, H, W]")
    channels = int(str(image.shape[1]))
    ok = weight.rank == 2 and weight.shape[1] == channels * kernel * ROW
    want = f"[C, {channels * kernel * ROW}]"
    expect(ok, "patch_embedding", "the weight does not fit", got=weight, want=want)
    taps = weight.reshaped((weight.shape[0], channels, kernel, kernel))
    pairs = ((stride, stride), (padding, padding))
    y = OPS["conv2d"].infer(image, taps, bias, stride=pairs[0], padding=pairs[1], groups=1)
    last = y.reshaped((y.shape[0], *y.shape[2:], y.shape[1]))
    want_type = last.reshaped((1, *last.shape[1:]))
    ok = positions == want_type
    expect(ok, "patch_embedding", "the positions do not fit", got=positions, want=want_type)
    return last


def reference(
    image: Array,
    weight: Array,
    bias: Array,
    positions: Array,
    *,
    kernel: int,
    stride: int,
    padding: int,
) -> Array:
    """One op after another."""
    taps = widen(weight).reshape(len(weight), image.shape[1], kernel, ROW)[..., ROW - kernel :]
    y = OPS["conv2d"].reference(
        widen(image),
        np.ascontiguousarray(taps),
        widen(bias),
        stride=(stride, stride),
        padding=(padding, padding),
        groups=1,
    )
    result: Array = (y.transpose(0, 2, 3, 1) + widen(positions)).astype(image.dtype)
    return result


def work(result: TensorType, image: TensorType, weight: TensorType, *_: TensorType,
         **__: object) -> Dim:  # fmt: skip
    """One multiply-add for each output and tap."""
    return product(result.shape) * weight.shape[1]


register(
    "patch_embedding",
    infer=infer,
    reference=reference,
    work=work,
    meaning=__doc__,
    table=ENGINE_OPS,
)

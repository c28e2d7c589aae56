"""conv_transpose2d: the transpose of a convolution; every input pixel adds a scaled kernel.

    y[n, o, i*stride + a, j*stride + b] += x[n, c, i, j] * weight[c, o, a, b]

Images are [N, C, H, W]; the weight is (in, out, kh, kw), as in a checkpoint. No padding and no
groups: SAM 2 uses neither here.
"""

import numpy as np

from samgraph.graph.builder import Tensor, emit
from samgraph.graph.dims import Dim, product
from samgraph.graph.registry import expect, register
from samgraph.graph.types import Array, TensorType
from samgraph.ops.rules import need_float, need_pixels, need_rank, widen

Pair = tuple[int, int]


def conv_transpose2d(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, *, stride: Pair
) -> Tensor:
    """A transposed convolution: [N, C, H, W] -> [N, O, (H-1)*stride + kh, ...]."""
    return emit("conv_transpose2d", x, weight, bias, stride=stride)


def infer(
    x: TensorType, weight: TensorType, bias: TensorType | None = None, *, stride: Pair
) -> TensorType:
    """Channels become the second axis of `weight`; the image grows."""
    need_float("conv_transpose2d", x, weight, *([bias] if bias else []))
    need_rank("conv_transpose2d", "x", x, 4)
    need_pixels("conv_transpose2d", x)
    need_rank("conv_transpose2d", "weight", weight, 4)
    inner, out, *kernel = weight.shape
    expect(
        x.shape[1] == inner,
        "conv_transpose2d",
        "channels do not fit the weight",
        got=f"x: {x}, weight: {weight}",
        want=f"x: [N, {inner}, H, W]",
    )
    if bias:
        ok = bias.shape == (out,)
        expect(ok, "conv_transpose2d", "one bias per output", got=bias, want=f"[{out}]")
    expect(min(stride) >= 1, "conv_transpose2d", "bad stride", got=stride, want=">= 1")
    grown = [(n - 1) * s + k for n, s, k in zip(x.shape[2:], stride, kernel, strict=True)]
    return x.reshaped((x.shape[0], out, *grown))


def reference(x: Array, weight: Array, bias: Array | None = None, *, stride: Pair) -> Array:
    """One matrix product for each offset in the kernel, added to a strided slice."""
    count, inner, height, width = x.shape
    _, out, kernel_h, kernel_w = weight.shape
    flat = widen(x).reshape(count, inner, height * width)
    size = ((height - 1) * stride[0] + kernel_h, (width - 1) * stride[1] + kernel_w)
    y = np.zeros((count, out, *size), flat.dtype)
    for i in range(kernel_h):
        for j in range(kernel_w):
            paint = (widen(weight)[:, :, i, j].T @ flat).reshape(count, out, height, width)
            rows = slice(i, i + (height - 1) * stride[0] + 1, stride[0])
            columns = slice(j, j + (width - 1) * stride[1] + 1, stride[1])
            y[:, :, rows, columns] += paint
    if bias is not None:
        y = y + widen(bias)[:, None, None]
    return y.astype(x.dtype)


def work(_: TensorType, x: TensorType, weight: TensorType, *__: TensorType, **___: object) -> Dim:
    """One multiply-add for each input and weight of its channel."""
    return product(x.shape) * product(weight.shape[1:])


register("conv_transpose2d", infer=infer, reference=reference, work=work, meaning=__doc__)

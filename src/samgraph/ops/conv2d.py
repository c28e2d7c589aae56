"""conv2d: slide a window over an image and take the weighted sum at each position.

    y[n, o, i, j] = bias[o] + sum over c, a, b of x[n, c, i*stride + a - pad, ...] * w[o, c, a, b]

Images are [N, C, H, W]; the weight is (out, in / groups, kh, kw). Outside the image `x` is zero.
Group g reads its own share of the input channels and writes its own share of the outputs.
"""

import numpy as np

from samgraph.graph.builder import Tensor, emit
from samgraph.graph.dims import Dim, known, product
from samgraph.graph.registry import expect, register
from samgraph.graph.types import Array, TensorType
from samgraph.ops.rules import need_float, need_pixels, need_rank, widen, window_length

Pair = tuple[int, int]


def conv2d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    stride: Pair = (1, 1),
    padding: Pair = (0, 0),
    groups: int = 1,
) -> Tensor:
    """A 2-d convolution: [N, C, H, W] -> [N, O, H', W']."""
    return emit("conv2d", x, weight, bias, stride=stride, padding=padding, groups=groups)


def infer(
    x: TensorType,
    weight: TensorType,
    bias: TensorType | None = None,
    *,
    stride: Pair,
    padding: Pair,
    groups: int,
) -> TensorType:
    """Channels become the rows of `weight`; the window slides over height and width."""
    need_float("conv2d", x, weight, *([bias] if bias else []))
    need_rank("conv2d", "x", x, 4)
    need_pixels("conv2d", x)
    need_rank("conv2d", "weight", weight, 4)
    out, width, kernel_h, kernel_w = weight.shape
    ok = groups >= 1 and x.shape[1] == width * groups and isinstance(out, int) and out % groups == 0
    expect(
        ok,
        "conv2d",
        "channels do not fit the weight",
        got=f"x: {x}, weight: {weight}, groups={groups}",
        want=f"x: [N, {width * groups}, H, W]",
    )
    expect(
        not weight.symbols,
        "conv2d",
        "the window must have a known size",
        got=f"x: {x}, weight: {weight}",
        want="numbers",
    )
    if bias:
        expect(bias.shape == (out,), "conv2d", "one bias per output", got=bias, want=f"[{out}]")
    positive = min(stride) >= 1 and min(padding) >= 0
    expect(positive, "conv2d", "bad stride or padding", got=f"{stride}, {padding}", want=">= 1, 0")
    sizes = zip(x.shape[2:], (kernel_h, kernel_w), stride, padding, strict=True)
    sizes_out = [window_length(length, known(k), s, p) for length, k, s, p in sizes]
    expect(
        all(not isinstance(n, int) or n >= 1 for n in sizes_out),
        "conv2d",
        "the window is larger than the image",
        got=f"x: {x}, weight: {weight}",
        want="a larger image",
    )
    return x.reshaped((x.shape[0], out, *sizes_out))


def reference(
    x: Array,
    weight: Array,
    bias: Array | None = None,
    *,
    stride: Pair,
    padding: Pair,
    groups: int,
) -> Array:
    """One matrix product for each offset in the window, summed."""
    (pad_h, pad_w), (step_h, step_w) = padding, stride
    wide = np.pad(widen(x), ((0, 0), (0, 0), (pad_h, pad_h), (pad_w, pad_w)))
    out, inner, kernel_h, kernel_w = weight.shape
    height = (wide.shape[2] - kernel_h) // step_h + 1
    width = (wide.shape[3] - kernel_w) // step_w + 1
    taps = widen(weight).reshape(groups, out // groups, inner, kernel_h, kernel_w)
    total = np.zeros((x.shape[0], groups, out // groups, height * width), taps.dtype)
    for i in range(kernel_h):
        for j in range(kernel_w):
            seen = wide[:, :, i : i + step_h * height : step_h, j : j + step_w * width : step_w]
            seen = seen[:, :, :height, :width].reshape(x.shape[0], groups, inner, height * width)
            total += taps[:, :, :, i, j] @ seen
    y = total.reshape(x.shape[0], out, height, width)
    if bias is not None:
        y = y + widen(bias)[:, None, None]
    return y.astype(x.dtype)


def work(
    result: TensorType, _: TensorType, weight: TensorType, *__: TensorType, **___: object
) -> Dim:
    """One multiply-add for each output and weight of its channel."""
    return product(result.shape) * product(weight.shape[1:])


register("conv2d", infer=infer, reference=reference, work=work, meaning=__doc__)

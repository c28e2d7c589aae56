"""max_pool2d: the largest element under a window sliding over an image [N, C, H, W]."""

import numpy as np

from samgraph.graph.builder import Tensor, emit
from samgraph.graph.registry import expect, register
from samgraph.graph.types import Array, TensorType
from samgraph.ops.rules import need_float, need_rank, window_length

Pair = tuple[int, int]


def max_pool2d(x: Tensor, *, kernel: Pair, stride: Pair | None = None) -> Tensor:
    """The largest element under each window; the stride is the kernel unless given."""
    return emit("max_pool2d", x, kernel=kernel, stride=stride or kernel)


def infer(x: TensorType, *, kernel: Pair, stride: Pair) -> TensorType:
    """The image shrinks; a last, partial window is left out."""
    need_float("max_pool2d", x)
    need_rank("max_pool2d", "x", x, 4)
    expect(0 not in x.shape, "max_pool2d", "there is no image", got=x, want="[N, C, H, W]")
    ok = min(*kernel, *stride) >= 1
    expect(ok, "max_pool2d", "bad kernel or stride", got=f"{kernel}, {stride}", want=">= 1")
    sizes = zip(x.shape[2:], kernel, stride, strict=True)
    sizes_out = [window_length(length, k, s, 0) for length, k, s in sizes]
    fits = all(not isinstance(n, int) or n >= 1 for n in sizes_out)
    expect(fits, "max_pool2d", "the window is larger than the image", got=x, want=kernel)
    return x.reshaped((*x.shape[:2], *sizes_out))


def reference(x: Array, *, kernel: Pair, stride: Pair) -> Array:
    """Numpy's sliding windows, their maximum."""
    windows = np.lib.stride_tricks.sliding_window_view(x, kernel, axis=(2, 3))
    y: Array = windows[:, :, :: stride[0], :: stride[1]].max((-2, -1))
    return y


register("max_pool2d", infer=infer, reference=reference, meaning=__doc__)

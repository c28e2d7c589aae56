"""resize: an image [N, C, H, W] at another size; pixel centres at halves, corners not aligned.

`how` is nearest (the pixel at ``floor(index * scale)``, in float32), bilinear, or bicubic. With
`antialias` the kernel is stretched when the image shrinks, so that every input pixel counts. The
bicubic kernel has a = -0.75, and -0.5 with antialias: the conventions of the reference's
framework. Each axis is a small matrix of weights; the result is ``rows @ x @ columns.T``.
"""

import numpy as np

from samgraph.graph.builder import Tensor, emit
from samgraph.graph.dims import Dim
from samgraph.graph.registry import expect, register
from samgraph.graph.types import Array, TensorType
from samgraph.ops.rules import need_float, need_pixels, need_rank, widen

HOW = ("nearest", "bilinear", "bicubic")


def resize(x: Tensor, size: tuple[Dim, Dim], *, how: str, antialias: bool = False) -> Tensor:
    """The image at `size` (height, width)."""
    return emit("resize", x, size=size, how=how, antialias=antialias)


def infer(x: TensorType, *, size: tuple[Dim, Dim], how: str, antialias: bool) -> TensorType:
    """Only height and width change."""
    need_float("resize", x)
    need_rank("resize", "x", x, 4)
    need_pixels("resize", x)
    expect(how in HOW, "resize", "no such way", got=how, want=", ".join(HOW))
    ok = len(size) == 2 and all(not isinstance(n, int) or n >= 1 for n in size)
    expect(ok, "resize", "bad size", got=size, want="(height, width)")
    ok = not (antialias and how == "nearest")
    expect(ok, "resize", "nearest has no antialias", got="antialias=True", want="False")
    return x.reshaped((*x.shape[:2], *size))


def reference(x: Array, *, size: tuple[int, int], how: str, antialias: bool) -> Array:
    """Two matrix products."""
    wide = widen(x)
    rows = weights(x.shape[2], size[0], how, antialias).astype(wide.dtype)
    columns = weights(x.shape[3], size[1], how, antialias).astype(wide.dtype)
    y: Array = rows @ wide @ columns.T
    return y.astype(x.dtype)


def weights(length: int, size: int, how: str, antialias: bool) -> Array:
    """The weight of each input pixel in every output pixel: [size, length] in float64."""
    matrix = np.zeros((size, length))
    indices = np.arange(size)
    if how == "nearest":
        source = np.floor(indices.astype(np.float32) * np.float32(length / size)).astype(int)
        matrix[indices, np.minimum(source, length - 1)] = 1
        return matrix
    scale = length / size
    centres = (indices + 0.5) * scale - 0.5
    if antialias:
        stretch = max(scale, 1.0)
        distance = (np.arange(length)[None] - centres[:, None]) / stretch
        matrix = _kernel(distance, how, -0.5)
        matrix /= matrix.sum(1, keepdims=True)
        return matrix
    reach = 1 if how == "bilinear" else 2
    first = np.floor(centres).astype(int)
    for tap in range(1 - reach, reach + 1):
        share = _kernel(centres - (first + tap), how, -0.75)
        np.add.at(matrix, (indices, np.clip(first + tap, 0, length - 1)), share)
    return matrix


def _kernel(distance: Array, how: str, a: float) -> Array:
    """The weight of a pixel at this distance from the centre."""
    d: Array = np.abs(distance)
    if how == "bilinear":
        tent: Array = np.maximum(1 - d, 0)
        return tent
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((d - 5) * d + 8) * d * a - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0.0))


register("resize", infer=infer, reference=reference, meaning=__doc__)

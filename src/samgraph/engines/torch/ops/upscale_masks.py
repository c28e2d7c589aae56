"""upscale_masks: the mask decoder's upscaling, and the product with the hypernetworks' outputs.

    x     = dc1(image) + feat_s1
    x     = gelu(layer_norm(x))
    x     = gelu(dc2(x) + feat_s0)
    masks = hyper_in @ x

The transposed convolutions are linear layers that make each cell 2 x 2
(`conv_transpose_to_linear`): image [N, E*E, C]; dc1 [4*A, C], dc2 [4*B, A], their rows the four
parts of a cell, with biases. feat_s1 [M, A, 2E, 2E] and feat_s0 [M, B, 4E, 4E], or as lists of
cells in that nested order, [M, 4*E*E, A] and [M, 16*E*E, B], where M is N or 1; hyper_in [N, m, B].
Gives [N, m, 4E, 4E].
"""

import math

import numpy as np

from samgraph.graph.dims import Dim, product
from samgraph.graph.registry import ENGINE_OPS, OPS, expect, register
from samgraph.graph.types import Array, TensorType
from samgraph.ops.rules import need_float, widen


def infer(
    image: TensorType,
    dc1: TensorType,
    dc1_bias: TensorType,
    feat_s1: TensorType,
    scale: TensorType,
    shift: TensorType,
    dc2: TensorType,
    dc2_bias: TensorType,
    feat_s0: TensorType,
    hyper_in: TensorType,
    *,
    eps: float,
) -> TensorType:
    """A mask for each row of `hyper_in`."""
    given = (image, dc1, dc1_bias, feat_s1, scale, shift, dc2, dc2_bias, feat_s0, hyper_in)
    need_float("upscale_masks", *given)
    shapes = ", ".join(map(str, given))
    ok = image.rank == hyper_in.rank == 3 and isinstance(image.shape[1], int)
    expect(ok, "upscale_masks", "image and hyper_in do not fit", got=shapes, want="[N, I, C]")
    cells = int(str(image.shape[1]))
    side = math.isqrt(cells)
    expect(side * side == cells, "upscale_masks", "the grid is not square", got=cells, want="E*E")
    A, B = (int(str(weight.shape[0])) // 4 for weight in (dc1, dc2))
    OPS["linear"].infer(image, dc1, dc1_bias)
    first = image.reshaped((image.shape[0], 4 * cells, A))
    OPS["layer_norm"].infer(first, scale, shift, eps=eps)
    OPS["linear"].infer(first, dc2, dc2_bias)
    for map_, width, times in ((feat_s1, A, 1), (feat_s0, B, 2)):
        listed = (cells * 4**times, width)
        large = (width, side * 2**times, side * 2**times)
        ok = map_.shape[1:] in (listed, large) and map_.shape[0] in (1, image.shape[0])
        expect(ok, "upscale_masks", "a feature map does not fit", got=map_, want=f"{large}")
    ok = hyper_in.shape[0] == image.shape[0] and hyper_in.shape[2] == B
    expect(ok, "upscale_masks", "hyper_in does not fit", got=hyper_in, want=f"[N, m, {B}]")
    return image.reshaped((*hyper_in.shape[:2], 4 * side, 4 * side))


def reference(
    image: Array,
    dc1: Array,
    dc1_bias: Array,
    feat_s1: Array,
    scale: Array,
    shift: Array,
    dc2: Array,
    dc2_bias: Array,
    feat_s0: Array,
    hyper_in: Array,
    *,
    eps: float,
) -> Array:
    """One op after another, cells in nested order."""
    N, cells, _ = image.shape
    gelu, norm, linear = (OPS[op].reference for op in ("gelu", "layer_norm", "linear"))
    x = linear(widen(image), widen(dc1), widen(dc1_bias)).reshape(N, 4 * cells, -1)
    x = gelu(norm(x + as_cells(widen(feat_s1), cells), widen(scale), widen(shift), eps=eps))
    x = linear(x, widen(dc2), widen(dc2_bias)).reshape(N, 16 * cells, -1)
    x = gelu(x + as_cells(widen(feat_s0), cells))
    y = widen(hyper_in) @ x.transpose(0, 2, 1)
    side = math.isqrt(cells)
    split = y.reshape(N, -1, side, side, 2, 2, 2, 2).transpose(0, 1, 2, 4, 6, 3, 5, 7)
    return np.ascontiguousarray(split).reshape(N, -1, 4 * side, 4 * side).astype(image.dtype)


def as_cells(x: Array, cells: int) -> Array:
    """A feature map [M, A, H, H] as a list of cells [M, H*H, A] in nested order."""
    if x.ndim == 3:
        return x
    M, A, H, _ = x.shape
    side = math.isqrt(cells)
    times = (H // side).bit_length() - 1
    parts = (side, *(2,) * times)
    order = [axis for step in range(times + 1) for axis in (1 + step, 2 + times + step)]
    split = x.transpose(0, 2, 3, 1).reshape(M, *parts, *parts, A)
    return split.transpose(0, *order, split.ndim - 1).reshape(M, H * H, A)


def work(result: TensorType, image: TensorType, dc1: TensorType, *others: TensorType,
         **_: object) -> Dim:  # fmt: skip
    """Both linear layers, and the masks."""
    dc2 = others[4]
    pixels = product(result.shape) * others[7].shape[2]
    steps = dc1.shape[0] * image.shape[2] + dc2.shape[0] * dc2.shape[1] * 4
    return product(image.shape[:2]) * steps + pixels


register(
    "upscale_masks", infer=infer, reference=reference, work=work, meaning=__doc__, table=ENGINE_OPS
)

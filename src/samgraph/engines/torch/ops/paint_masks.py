"""paint_masks: an image grows four times larger, with finer maps, and is multiplied by brushes.

    x     = linear(image, grow), each cell two by two, + coarse
    x     = gelu(layer_norm(x))
    x     = gelu(linear(x, again), two by two, + fine)
    masks = brushes @ x

image [N, E*E, C]; grow [4*A, C], again [4*B, A], their rows the four parts of a cell, with biases;
coarse [M, A, 2E, 2E] and fine [M, B, 4E, 4E], or as lists of cells in the order they grow,
[M, 4*E*E, A] and [M, 16*E*E, B], where M is N or 1; brushes [N, m, B]. Gives [N, m, 4E, 4E].
"""

import math

import numpy as np

from samgraph.graph.dims import Dim, product
from samgraph.graph.registry import ENGINE_OPS, OPS, expect, register
from samgraph.graph.types import Array, TensorType
from samgraph.ops.rules import need_float, widen


def infer(
    image: TensorType,
    grow: TensorType,
    grow_bias: TensorType,
    coarse: TensorType,
    scale: TensorType,
    shift: TensorType,
    again: TensorType,
    again_bias: TensorType,
    fine: TensorType,
    brushes: TensorType,
    *,
    eps: float,
) -> TensorType:
    """A mask for each brush."""
    given = (image, grow, grow_bias, coarse, scale, shift, again, again_bias, fine, brushes)
    need_float("paint_masks", *given)
    shapes = ", ".join(map(str, given))
    ok = image.rank == brushes.rank == 3 and isinstance(image.shape[1], int)
    expect(ok, "paint_masks", "image and brushes do not fit", got=shapes, want="[N, I, C]")
    cells = int(str(image.shape[1]))
    side = math.isqrt(cells)
    expect(side * side == cells, "paint_masks", "the grid is no square", got=cells, want="E*E")
    A, B = (int(str(weight.shape[0])) // 4 for weight in (grow, again))
    OPS["linear"].infer(image, grow, grow_bias)
    first = image.reshaped((image.shape[0], 4 * cells, A))
    OPS["layer_norm"].infer(first, scale, shift, eps=eps)
    OPS["linear"].infer(first, again, again_bias)
    for map_, width, times in ((coarse, A, 1), (fine, B, 2)):
        listed = (cells * 4**times, width)
        large = (width, side * 2**times, side * 2**times)
        ok = map_.shape[1:] in (listed, large) and map_.shape[0] in (1, image.shape[0])
        expect(ok, "paint_masks", "a finer map does not fit", got=map_, want=f"{large}")
    ok = brushes.shape[0] == image.shape[0] and brushes.shape[2] == B
    expect(ok, "paint_masks", "the brushes do not fit", got=brushes, want=f"[N, m, {B}]")
    return image.reshaped((*brushes.shape[:2], 4 * side, 4 * side))


def reference(
    image: Array,
    grow: Array,
    grow_bias: Array,
    coarse: Array,
    scale: Array,
    shift: Array,
    again: Array,
    again_bias: Array,
    fine: Array,
    brushes: Array,
    *,
    eps: float,
) -> Array:
    """One op after another, cells in the order they grow."""
    N, cells, _ = image.shape
    gelu, norm, linear = (OPS[op].reference for op in ("gelu", "layer_norm", "linear"))
    x = linear(widen(image), widen(grow), widen(grow_bias)).reshape(N, 4 * cells, -1)
    x = gelu(norm(x + as_cells(widen(coarse), cells), widen(scale), widen(shift), eps=eps))
    x = linear(x, widen(again), widen(again_bias)).reshape(N, 16 * cells, -1)
    x = gelu(x + as_cells(widen(fine), cells))
    y = widen(brushes) @ x.transpose(0, 2, 1)
    side = math.isqrt(cells)
    apart = y.reshape(N, -1, side, side, 2, 2, 2, 2).transpose(0, 1, 2, 4, 6, 3, 5, 7)
    return np.ascontiguousarray(apart).reshape(N, -1, 4 * side, 4 * side).astype(image.dtype)


def as_cells(x: Array, cells: int) -> Array:
    """A finer map [M, A, H, H] as a list [M, H*H, A] in the order in which cells grow."""
    if x.ndim == 3:
        return x
    M, A, H, _ = x.shape
    side = math.isqrt(cells)
    times = (H // side).bit_length() - 1
    parts = (side, *(2,) * times)
    order = [axis for step in range(times + 1) for axis in (1 + step, 2 + times + step)]
    apart = x.transpose(0, 2, 3, 1).reshape(M, *parts, *parts, A)
    return apart.transpose(0, *order, apart.ndim - 1).reshape(M, H * H, A)


def work(result: TensorType, image: TensorType, grow: TensorType, *others: TensorType,
         **_: object) -> Dim:  # fmt: skip
    """Both linear layers, and the masks."""
    again = others[4]
    pixels = product(result.shape) * others[7].shape[2]
    steps = grow.shape[0] * image.shape[2] + again.shape[0] * again.shape[1] * 4
    return product(image.shape[:2]) * steps + pixels


register(
    "paint_masks", infer=infer, reference=reference, work=work, meaning=__doc__, table=ENGINE_OPS
)

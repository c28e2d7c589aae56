"""enlarge_mask: mask logits enlarged bilinearly, through a sigmoid, scaled and shifted.

    y = sigmoid(resize(mask * gain + offset)) * scale + shift

mask [N, 1, h, w], gain and offset [N, 1, 1, 1] -> [N, 1, H, W].
"""

from samgraph.graph.dims import Dim, product
from samgraph.graph.registry import ENGINE_OPS, OPS, expect, register
from samgraph.graph.types import Array, TensorType
from samgraph.ops.rules import need_float, widen

Pair = tuple[int, int]


def infer(
    mask: TensorType,
    gain: TensorType,
    offset: TensorType,
    *,
    size: Pair,
    scale: float,
    shift: float,
) -> TensorType:
    """The mask in another size."""
    need_float("enlarge_mask", mask, gain, offset)
    each = mask.reshaped((mask.shape[0], 1, 1, 1))
    ok = mask.rank == 4 and mask.shape[1] == 1 and gain == offset == each
    expect(ok, "enlarge_mask", "inputs do not fit", got=f"{mask}, {gain}, {offset}", want=each)
    return OPS["resize"].infer(mask, size=size, how="bilinear", antialias=False)


def reference(
    mask: Array, gain: Array, offset: Array, *, size: Pair, scale: float, shift: float
) -> Array:
    """One op after another."""
    x = widen(mask) * widen(gain) + widen(offset)
    x = OPS["resize"].reference(x, size=size, how="bilinear", antialias=False)
    y: Array = OPS["sigmoid"].reference(x) * x.dtype.type(scale) + x.dtype.type(shift)
    return y.astype(mask.dtype)


def work(result: TensorType, *_: TensorType, **__: object) -> Dim:
    """Four multiply-adds for each pixel."""
    return 4 * product(result.shape)


register(
    "enlarge_mask",
    infer=infer,
    reference=reference,
    work=work,
    meaning=__doc__,
    table=ENGINE_OPS,
)

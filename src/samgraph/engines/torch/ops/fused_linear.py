"""fused_linear: a linear layer with the norm before it, and what follows it.

    y = residual + activation(norm(x) @ weight.T + bias)

    norm         mean 0 and variance 1 over the last axis; none where `eps` is 0
    pool         the largest of each 2 x 2 of a map: x [B, H, W, C] -> [B, H/2, W/2, out]
    rotated      so many of the first columns are turned by axial RoPE, in heads of `width`:
                 x [..., T, C], the last `unrotated` tokens left as they are (`ops/axial_rope.py`);
                 each such head is in halves: its even channels first, then its odd ones
    residual     optional, of the type of the result

A norm's scale and shift are in weight and bias, which is always there; where the layer is not
`biased`, it is not added.
"""

import numpy as np

from samgraph.graph.dims import Dim, divide, product
from samgraph.graph.registry import ENGINE_OPS, OPS, expect, register
from samgraph.graph.types import Array, TensorType
from samgraph.ops.rules import need_float, widen

Pair = tuple[int, int]


def infer(
    x: TensorType,
    weight: TensorType,
    bias: TensorType,
    residual: TensorType | None = None,
    *,
    eps: float = 0.0,
    activation: str = "none",
    pool: bool = False,
    rotated: int = 0,
    width: int = 0,
    grid: Pair = (1, 1),
    theta: float = 1.0,
    unrotated: Dim = 0,
    biased: bool = True,
) -> TensorType:
    """The type of the linear layer, half as high and wide where it pools."""
    need_float("fused_linear", x, weight, bias)
    expect(eps >= 0, "fused_linear", "`eps` is negative", got=eps, want=">= 0")
    y = OPS["linear"].infer(x, weight, bias, activation=activation)
    if pool:
        sides = [divide(side, 2) for side in y.shape[1:3]]
        ok = y.rank == 4 and None not in sides
        expect(ok, "fused_linear", "pools maps of even sides", got=y, want="[B, H, W, C]")
        y = y.reshaped((y.shape[0], *(side for side in sides if side is not None), y.shape[3]))
    if rotated:
        ok = width > 0 and rotated % width == 0 and not pool
        expect(ok, "fused_linear", "heads do not fit", got=rotated, want=f"n * {width}")
        heads = y.reshaped((*y.shape[:-1], rotated))
        count = rotated // width
        OPS["axial_rope"].infer(heads, grid=grid, theta=theta, heads=count, unrotated=unrotated)
    if residual:
        expect(residual == y, "fused_linear", "the residual does not fit", got=residual, want=y)
    return y


def reference(
    x: Array,
    weight: Array,
    bias: Array,
    residual: Array | None = None,
    *,
    eps: float = 0.0,
    activation: str = "none",
    pool: bool = False,
    rotated: int = 0,
    width: int = 0,
    grid: Pair = (1, 1),
    theta: float = 1.0,
    unrotated: int = 0,
    biased: bool = True,
) -> Array:
    """One op after another."""
    y = widen(x)
    if eps:
        one, zero = np.ones(x.shape[-1], y.dtype), np.zeros(x.shape[-1], y.dtype)
        y = OPS["layer_norm"].reference(y, one, zero, eps=eps)
    added = widen(bias) * y.dtype.type(biased)
    y = OPS["linear"].reference(y, widen(weight), added, activation=activation)
    if pool:
        B, H, W, C = y.shape
        y = y.reshape(B, H // 2, 2, W // 2, 2, C).max((2, 4))
    if rotated:
        heads = rotated // width
        pairs = in_pairs(y[..., :rotated], width)
        turned = OPS["axial_rope"].reference(
            pairs, grid=grid, theta=theta, heads=heads, unrotated=unrotated
        )
        y = np.concatenate([in_halves(turned, width), y[..., rotated:]], -1)
    return (y if residual is None else y + widen(residual)).astype(x.dtype)


def in_halves(x: Array, width: int) -> Array:
    """Columns in heads of `width`, of each the even channels first, then the odd ones."""
    apart = x.reshape(*x.shape[:-1], -1, width // 2, 2)
    return np.swapaxes(apart, -1, -2).reshape(x.shape)


def in_pairs(x: Array, width: int) -> Array:
    """The inverse of `in_halves`."""
    apart = x.reshape(*x.shape[:-1], -1, 2, width // 2)
    return np.swapaxes(apart, -1, -2).reshape(x.shape)


def work(result: TensorType, x: TensorType, *_: TensorType, **__: object) -> Dim:
    """One multiply-add for each output and input channel."""
    return product(x.shape) * result.shape[-1]


register(
    "fused_linear", infer=infer, reference=reference, work=work, meaning=__doc__, table=ENGINE_OPS
)

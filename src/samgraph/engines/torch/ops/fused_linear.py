"""fused_linear: a linear layer with the norm before it, and what follows it.

    y = residual + activation(norm(x) @ weight.T + bias)

The norm has mean 0 and variance 1 over the last axis; its scale and shift are in weight and bias.
The residual is optional, of the type of the result. `LinearAttributes` says what else is done.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from samgraph.graph.dims import Dim, divide, product
from samgraph.graph.registry import ENGINE_OPS, OPS, expect, register
from samgraph.graph.types import Array, TensorType
from samgraph.ops.rules import need_float, widen

Pair = tuple[int, int]


@dataclass(frozen=True, slots=True)
class LinearAttributes:
    """What is done before and after the product.

    eps          of the norm; 0 for no norm
    activation   as of `linear`
    pool         max over each 2 x 2 of a map: x [B, H, W, C] -> [B, H/2, W/2, out]
    rotated      how many of the first columns are rotated by axial RoPE, in heads of `width`:
                 x [..., T, C] without its last `unrotated` tokens (`ops/axial_rope.py`); each such
                 head is in halves: its even channels first, then its odd channels
    biased       whether the bias, which is always an input, is added
    """

    eps: float = 0.0
    activation: str = "none"
    pool: bool = False
    rotated: int = 0
    width: int = 0
    grid: Pair = (1, 1)
    theta: float = 1.0
    unrotated: Dim = 0
    biased: bool = True

    @property
    def rope(self) -> dict[str, Any]:
        """The attributes of `axial_rope` on the rotated columns."""
        return {
            "grid": self.grid,
            "theta": self.theta,
            "heads": self.rotated // self.width,
            "unrotated": self.unrotated,
        }


def infer(
    x: TensorType,
    weight: TensorType,
    bias: TensorType,
    residual: TensorType | None = None,
    **attributes: Any,
) -> TensorType:
    """The type of the linear layer, half as high and wide where it pools."""
    need_float("fused_linear", x, weight, bias)
    at = LinearAttributes(**attributes)
    expect(at.eps >= 0, "fused_linear", "`eps` is negative", got=at.eps, want=">= 0")
    y = OPS["linear"].infer(x, weight, bias, activation=at.activation)
    if at.pool:
        sides = [divide(side, 2) for side in y.shape[1:3]]
        ok = y.rank == 4 and None not in sides
        expect(ok, "fused_linear", "pools maps of even sides", got=y, want="[B, H, W, C]")
        y = y.reshaped((y.shape[0], *(side for side in sides if side is not None), y.shape[3]))
    if at.rotated:
        ok = at.width > 0 and at.rotated % at.width == 0 and not at.pool
        expect(ok, "fused_linear", "heads do not fit", got=at.rotated, want=f"n * {at.width}")
        OPS["axial_rope"].infer(y.reshaped((*y.shape[:-1], at.rotated)), **at.rope)
    if residual:
        expect(residual == y, "fused_linear", "the residual does not fit", got=residual, want=y)
    return y


def reference(
    x: Array, weight: Array, bias: Array, residual: Array | None = None, **attributes: Any
) -> Array:
    """One op after another."""
    at, y = LinearAttributes(**attributes), widen(x)
    if at.eps:
        one, zero = np.ones(x.shape[-1], y.dtype), np.zeros(x.shape[-1], y.dtype)
        y = OPS["layer_norm"].reference(y, one, zero, eps=at.eps)
    added = widen(bias) * y.dtype.type(at.biased)
    y = OPS["linear"].reference(y, widen(weight), added, activation=at.activation)
    if at.pool:
        B, H, W, C = y.shape
        y = y.reshape(B, H // 2, 2, W // 2, 2, C).max((2, 4))
    if at.rotated:
        pairs = in_pairs(y[..., : at.rotated], at.width)
        rotated = in_halves(OPS["axial_rope"].reference(pairs, **at.rope), at.width)
        y = np.concatenate([rotated, y[..., at.rotated :]], -1)
    return (y if residual is None else y + widen(residual)).astype(x.dtype)


def in_halves(x: Array, width: int) -> Array:
    """Columns in heads of `width`, the even channels of each first, then the odd."""
    split = x.reshape(*x.shape[:-1], -1, width // 2, 2)
    return np.swapaxes(split, -1, -2).reshape(x.shape)


def in_pairs(x: Array, width: int) -> Array:
    """The inverse of `in_halves`."""
    split = x.reshape(*x.shape[:-1], -1, 2, width // 2)
    return np.swapaxes(split, -1, -2).reshape(x.shape)


def work(result: TensorType, x: TensorType, *_: TensorType, **__: object) -> Dim:
    """One multiply-add for each output and input channel."""
    return product(x.shape) * result.shape[-1]


register(
    "fused_linear",
    infer=infer,
    reference=reference,
    work=work,
    meaning=__doc__,
    attributes=LinearAttributes,
    table=ENGINE_OPS,
)

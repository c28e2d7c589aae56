"""mlp: the feed-forward half of a transformer block, for narrow rows, in one kernel.

    y = x + activation(norm(x) @ inner.T + inner_bias) @ outer.T + outer_bias

A program holds some rows of x whole, normalised once, and loops over the hidden channels:
each step computes some of them and accumulates their product. x [M, C], inner [H, C],
outer [C, H] -> [M, C].
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from samgraph.engines.torch.kernels.activations import activate, normalise
from samgraph.engines.torch.kernels.launch import Kernel, block_width


@triton.jit
def _mlp(x_ptr, w_ptr, b_ptr, v_ptr, c_ptr, y_ptr, M, H, x_stride, y_stride, eps,
         ACTIVATION: tl.constexpr, PRECISION: tl.constexpr, C: tl.constexpr, BC: tl.constexpr,
         BM: tl.constexpr, BH: tl.constexpr):  # fmt: skip
    rows, cs = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, BC)
    here = (cs < C)[None, :]
    x_at = x_ptr + tl.minimum(rows, M - 1).to(tl.int64)[:, None] * x_stride + cs[None, :]
    x = tl.load(x_at, mask=here, other=0.0).to(tl.float32)
    x = normalise(x, here, C, eps).to(w_ptr.dtype.element_ty)
    y = tl.zeros((BM, BC), tl.float32)
    for start in range(0, H, BH):
        hs = start + tl.arange(0, BH)
        w = tl.load(w_ptr + hs[None, :] * C + cs[:, None], mask=(cs < C)[:, None], other=0.0)
        v = tl.load(v_ptr + cs[None, :] * H + hs[:, None], mask=here, other=0.0)
        hidden = tl.dot(x, w, input_precision=PRECISION) + tl.load(b_ptr + hs)[None, :]
        hidden = activate(hidden, ACTIVATION).to(v.dtype)
        y = tl.dot(hidden, v, y, input_precision=PRECISION)
    y += tl.load(c_ptr + cs, mask=cs < C, other=0.0).to(tl.float32)[None, :]
    y += tl.load(x_at, mask=here, other=0.0).to(tl.float32)
    y_at = y_ptr + rows.to(tl.int64)[:, None] * y_stride + cs[None, :]
    tl.store(y_at, y.to(y_ptr.dtype.element_ty), mask=(rows < M)[:, None] & here)


_KERNEL = Kernel(_mlp)


@dataclass(frozen=True, slots=True)
class Blocks:
    """Rows that a program holds, hidden channels of a step (a divisor of all), warps, stages."""

    rows: int
    hidden: int
    warps: int
    stages: int


def mlp(
    x: torch.Tensor,
    inner: torch.Tensor,
    inner_bias: torch.Tensor,
    outer: torch.Tensor,
    outer_bias: torch.Tensor,
    *,
    eps: float,
    activation: str,
    out: torch.Tensor,
    blocks: Blocks,
    precision: str = "tf32",
) -> torch.Tensor:
    """Fill `out` [M, C]."""
    M, C = x.shape
    _KERNEL(
        (triton.cdiv(M, blocks.rows),),
        x, inner, inner_bias, outer, outer_bias, out, M, len(inner), x.stride(0), out.stride(0),
        eps, ACTIVATION=activation, PRECISION=precision, C=C,
        BC=block_width(C), BM=blocks.rows, BH=blocks.hidden,
        warps=blocks.warps, stages=blocks.stages,
    )  # fmt: skip
    return out

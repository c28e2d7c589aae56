"""linear: one matrix product with what follows it in a transformer, tile by tile.

    y = residual + activation(x @ weight.T + bias)

Activation is none, relu or gelu. With pooling, y is the max over each 2 x 2 of a map. The
residual is added last, in float32, and repeated where it has fewer rows. See `row_linear.py` for
narrow products with a norm before them.

x [M, K], weight [N, K], bias [N], residual [R, N] with R dividing M -> [M, N], or [M/4, N].
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from samgraph.engines.torch.kernels.activations import activate
from samgraph.engines.torch.kernels.launch import Kernel


@triton.jit
def quads(rows, wide):
    """Rows of a map `wide` across, the four of each 2 x 2 together."""
    quad, corner = rows // 4, rows % 4
    half = wide // 2
    return (quad // half * 2 + corner // 2) * wide + quad % half * 2 + corner % 2


@triton.jit
def finish(y, rows, columns, inside, b_ptr, r_ptr, r_stride, r_rows, N,
           ACTIVATION: tl.constexpr, RESIDUAL: tl.constexpr):  # fmt: skip
    """Bias, activation and residual."""
    y += tl.load(b_ptr + columns, mask=columns < N, other=0.0).to(tl.float32)[None, :]
    y = activate(y, ACTIVATION)
    if RESIDUAL:
        offsets = (rows % r_rows)[:, None] * r_stride + columns[None, :]
        y += tl.load(r_ptr + offsets, mask=inside, other=0.0).to(tl.float32)
    return y


@triton.jit
def _tile(M, N, BM: tl.constexpr, BN: tl.constexpr, GROUP: tl.constexpr):
    """Row and column of this program's tile: GROUP rows of tiles are walked column by column."""
    number, down, across = tl.program_id(0), tl.cdiv(M, BM), tl.cdiv(N, BN)
    group = number // (GROUP * across)
    first = group * GROUP
    size = tl.minimum(down - first, GROUP)
    inside = number % (GROUP * across)
    return first + inside % size, inside // size


@triton.jit
def _linear(x_ptr, w_ptr, b_ptr, r_ptr, y_ptr, M, N, K, x_stride, r_stride, y_stride, r_rows, wide,
            ACTIVATION: tl.constexpr, RESIDUAL: tl.constexpr, POOL: tl.constexpr,
            EVEN: tl.constexpr, PRECISION: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
            BK: tl.constexpr, GROUP: tl.constexpr):  # fmt: skip
    down, across = _tile(M, N, BM, BN, GROUP)
    rows, columns = down * BM + tl.arange(0, BM), across * BN + tl.arange(0, BN)
    ks = tl.arange(0, BK)
    source, safe_columns = tl.minimum(rows, M - 1), tl.minimum(columns, N - 1)
    if POOL:
        source = quads(source, wide)
    x_at = x_ptr + source.to(tl.int64)[:, None] * x_stride + ks[None, :]
    w_at = w_ptr + safe_columns[None, :] * K + ks[:, None]
    y = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        if EVEN:
            x, w = tl.load(x_at + k), tl.load(w_at + k)
        else:
            x = tl.load(x_at + k, mask=(k + ks < K)[None, :], other=0.0)
            w = tl.load(w_at + k, mask=(k + ks < K)[:, None], other=0.0)
        y = tl.dot(x.to(w.dtype), w, y, input_precision=PRECISION)
    if POOL:
        y = tl.max(tl.reshape(y, (BM // 4, 4, BN)), 1)
        rows, M = down * (BM // 4) + tl.arange(0, BM // 4), M // 4
    inside = (rows < M)[:, None] & (columns < N)[None, :]
    y = finish(y, rows, columns, inside, b_ptr, r_ptr, r_stride, r_rows, N, ACTIVATION, RESIDUAL)
    y_at = y_ptr + rows.to(tl.int64)[:, None] * y_stride + columns[None, :]
    tl.store(y_at, y.to(y_ptr.dtype.element_ty), mask=inside)


_KERNEL = Kernel(_linear)


@dataclass(frozen=True, slots=True)
class Blocks:
    """How the product is cut: rows, columns and depth of a tile, warps, stages of loading."""

    rows: int
    columns: int
    depth: int
    warps: int
    stages: int


def linear(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    residual: torch.Tensor | None = None,
    *,
    activation: str = "none",
    pool: int = 0,
    out: torch.Tensor,
    blocks: Blocks,
    precision: str = "tf32",
) -> torch.Tensor:
    """Fill `out` [M, N], or [M/4, N] with `pool`, the width of the map that x is."""
    M, K = x.shape
    N = len(weight)
    added = out if residual is None else residual
    grid = (triton.cdiv(M, blocks.rows) * triton.cdiv(N, blocks.columns),)
    _KERNEL(
        grid, x, weight, bias, added, out, M, N, K, x.stride(0), added.stride(0), out.stride(0),
        len(added), pool, ACTIVATION=activation, RESIDUAL=residual is not None, POOL=pool > 0,
        EVEN=K % blocks.depth == 0, PRECISION=precision, BM=blocks.rows, BN=blocks.columns,
        BK=blocks.depth, GROUP=8, warps=blocks.warps, stages=blocks.stages,
    )  # fmt: skip
    return out

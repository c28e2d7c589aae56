"""row_linear: a linear layer of narrow rows, with the norm before it and what follows it.

    y = residual + activation(norm(x) @ weight.T + bias)        optionally rotated

A program holds some rows of x whole, normalised once, and loops over the columns of the product:
x is read once. The norm (mean 0, variance 1, in float32) has its scale and shift
in weight and bias. With pooling, y is the max over each 2 x 2 of a map.

Rotation is axial RoPE of the first columns, in heads whose weights are in halves: first those of
the even channels, then those of the odd, so that a pair is one column of each half.

x [M, K], weight [N, K], bias [N], residual [R, N] with R dividing M -> [M, N], or [M/4, N].
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from samgraph.engines.torch.kernels.activations import normalise
from samgraph.engines.torch.kernels.launch import Kernel, block_width
from samgraph.engines.torch.kernels.linear import finish, quads
from samgraph.engines.torch.kernels.rotation import Rotation


@triton.jit
def _held_rows(x_ptr, source, x_stride, eps, NORM: tl.constexpr, K: tl.constexpr,
               BK: tl.constexpr):  # fmt: skip
    """Whole rows, normalised: [BM, BK] in float32, zeros after K."""
    ks = tl.arange(0, BK)
    here = (ks < K)[None, :]
    at = x_ptr + source.to(tl.int64)[:, None] * x_stride + ks[None, :]
    x = tl.load(at, mask=here, other=0.0).to(tl.float32)
    if NORM:
        x = normalise(x, here, K, eps)
    return x


@triton.jit
def _row_linear(x_ptr, w_ptr, b_ptr, r_ptr, y_ptr, M, N, x_stride, r_stride, y_stride, r_rows,
                wide, share, eps, NORM: tl.constexpr, ACTIVATION: tl.constexpr,
                RESIDUAL: tl.constexpr, POOL: tl.constexpr, PRECISION: tl.constexpr,
                K: tl.constexpr, BK: tl.constexpr, BM: tl.constexpr,
                BN: tl.constexpr):  # fmt: skip
    rows, ks = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, BK)
    source = tl.minimum(rows, M - 1)
    if POOL:
        source = quads(source, wide)
    x = _held_rows(x_ptr, source, x_stride, eps, NORM, K, BK).to(w_ptr.dtype.element_ty)
    if POOL:
        rows, M = tl.program_id(0) * (BM // 4) + tl.arange(0, BM // 4), M // 4
    first = tl.program_id(1) * share
    for start in range(first, tl.minimum(first + share, N), BN):
        columns = start + tl.arange(0, BN)
        w_at = w_ptr + tl.minimum(columns, N - 1)[None, :] * K + ks[:, None]
        w = tl.load(w_at) if BK == K else tl.load(w_at, mask=(ks < K)[:, None], other=0.0)
        y = tl.dot(x, w, input_precision=PRECISION)
        if POOL:
            y = tl.max(tl.reshape(y, (BM // 4, 4, BN)), 1)
        inside = (rows < M)[:, None] & (columns < N)[None, :]
        y = finish(
            y, rows, columns, inside, b_ptr, r_ptr, r_stride, r_rows, N, ACTIVATION, RESIDUAL
        )
        y_at = y_ptr + rows.to(tl.int64)[:, None] * y_stride + columns[None, :]
        tl.store(y_at, y.to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def _part(x, w_ptr, b_ptr, start, PRECISION: tl.constexpr, K: tl.constexpr, BK: tl.constexpr,
          BN: tl.constexpr):  # fmt: skip
    columns, ks = start + tl.arange(0, BN), tl.arange(0, BK)
    w_at = w_ptr + columns[None, :] * K + ks[:, None]
    w = tl.load(w_at) if BK == K else tl.load(w_at, mask=(ks < K)[:, None], other=0.0)
    bias = tl.load(b_ptr + columns).to(tl.float32)
    return tl.dot(x, w, input_precision=PRECISION) + bias[None, :]


@triton.jit
def _rotated_linear(x_ptr, w_ptr, b_ptr, y_ptr, table_ptr, M, N, x_stride, y_stride, eps, tokens,
                    rotary, rotated, NORM: tl.constexpr, HIGH: tl.constexpr, WIDE: tl.constexpr,
                    FEW: tl.constexpr, PRECISION: tl.constexpr, K: tl.constexpr,
                    BK: tl.constexpr, BM: tl.constexpr):  # fmt: skip
    """Program 0 takes the pairs rotated by the column, program 1 those rotated by the row."""
    rows, pairs = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, FEW)
    x = _held_rows(x_ptr, tl.minimum(rows, M - 1), x_stride, eps, NORM, K, BK)
    x = x.to(w_ptr.dtype.element_ty)
    by_row, token = tl.program_id(1), rows % tokens
    position = tl.where(by_row > 0, (token // WIDE) % HIGH, token % WIDE)
    at = position[:, None] * FEW + pairs[None, :]
    held = (token < rotary)[:, None]
    cos = tl.load(table_ptr + at, mask=held, other=1.0)
    sin = tl.load(table_ptr + max(HIGH, WIDE) * FEW + at, mask=held, other=0.0)
    y_at = y_ptr + rows.to(tl.int64)[:, None] * y_stride + pairs[None, :]
    for start in range(by_row * FEW, N, 4 * FEW):
        a = _part(x, w_ptr, b_ptr, start, PRECISION, K, BK, FEW)
        b = _part(x, w_ptr, b_ptr, start + 2 * FEW, PRECISION, K, BK, FEW)
        if start < rotated:
            a, b = a * cos - b * sin, a * sin + b * cos
        tl.store(y_at + start, a.to(y_ptr.dtype.element_ty), mask=(rows < M)[:, None])
        tl.store(y_at + start + 2 * FEW, b.to(y_ptr.dtype.element_ty), mask=(rows < M)[:, None])


_ROWS, _ROTATED = Kernel(_row_linear), Kernel(_rotated_linear)
WIDEST = 256


@dataclass(frozen=True, slots=True)
class Blocks:
    """Rows that a program holds, columns of a step, parts of all columns, warps, stages."""

    rows: int
    columns: int
    parts: int
    warps: int
    stages: int


def row_linear(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    residual: torch.Tensor | None = None,
    *,
    eps: float = 0.0,
    activation: str = "none",
    pool: int = 0,
    out: torch.Tensor,
    blocks: Blocks,
    precision: str = "tf32",
) -> torch.Tensor:
    """Fill `out` [M, N], or [M/4, N] with `pool`, the width of the map that x is.

    An `eps` of zero leaves the norm out. K is at most `WIDEST`.
    """
    M, K = x.shape
    N = len(weight)
    added = out if residual is None else residual
    share = triton.cdiv(triton.cdiv(N, blocks.parts), blocks.columns) * blocks.columns
    _ROWS(
        (triton.cdiv(M, blocks.rows), triton.cdiv(N, share)),
        x, weight, bias, added, out, M, N, x.stride(0), added.stride(0), out.stride(0),
        len(added), pool, share, eps, NORM=eps > 0, ACTIVATION=activation,
        RESIDUAL=residual is not None, POOL=pool > 0, PRECISION=precision, K=K, BK=block_width(K),
        BM=blocks.rows, BN=blocks.columns, warps=blocks.warps, stages=blocks.stages,
    )  # fmt: skip
    return out


def rotated_linear(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    *,
    rotation: Rotation,
    eps: float = 0.0,
    out: torch.Tensor,
    blocks: Blocks,
    precision: str = "tf32",
) -> torch.Tensor:
    """Fill `out` [M, N], its rotated heads in halves; N is a multiple of their width."""
    M, K = x.shape
    _ROTATED(
        (triton.cdiv(M, blocks.rows), 2),
        x, weight, bias, out, rotation.table(x.device), M, len(weight), x.stride(0), out.stride(0),
        eps, rotation.tokens, rotation.rotary, rotation.columns, NORM=eps > 0,
        HIGH=rotation.grid[0], WIDE=rotation.grid[1], FEW=rotation.frequencies,
        PRECISION=precision, K=K, BK=block_width(K), BM=blocks.rows, warps=blocks.warps,
        stages=blocks.stages,
    )  # fmt: skip
    return out

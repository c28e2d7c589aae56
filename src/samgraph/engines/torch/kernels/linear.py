"""linear: one matrix product with all that stands beside it in a transformer.

    y = residual + activation(norm(x) @ weight.T + bias)        rotated, where asked

    norm         mean 0 and variance 1 of each row, in float32; its scale and shift are in the weight
    activation   none, relu, gelu
    rotation     axial RoPE of the first columns (see `ops/axial_rope.py`)
    pooling      the largest of every 2 x 2 rows of a map
    residual     added last, in float32; repeated where it has fewer rows

x [M, K], weight [N, K], bias [N], residual [R, N] with R dividing M -> [M, N].
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from samgraph.engines.torch.kernels.launch import Kernel
from samgraph.engines.torch.kernels.rotation import Rotation


@triton.jit
def _merge_moments(mean, spread, count, x, k, K, BK: tl.constexpr, EVEN: tl.constexpr):
    """Mean and summed squares with BK more columns of each row, by Chan's formula."""
    if EVEN:
        size = BK
        part = tl.sum(x, 1) / BK
        apart = x - part[:, None]
    else:
        size = tl.minimum(K - k, BK)
        part = tl.sum(x, 1) / size
        apart = tl.where((k + tl.arange(0, BK) < K)[None, :], x - part[:, None], 0.0)
    total = count + size
    step = part - mean
    spread += tl.sum(apart * apart, 1) + step * step * (count * size / total)
    return mean + step * (size / total), spread, total


@triton.jit
def _rotate(y, rows, columns, table_ptr, tokens, turned, rotated, HIGH: tl.constexpr,
            WIDE: tl.constexpr, FEW: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):  # fmt: skip
    """Pairs of columns turned by the angles of their row: table [2, side, FEW]."""
    pairs = tl.reshape(y, (BM, BN // 2, 2))
    a, b = tl.split(pairs)
    first = tl.min(columns, 0)
    pair = (first // 2 + tl.arange(0, BN // 2)) % (2 * FEW)
    token = rows % tokens
    column, row = token % WIDE, (token // WIDE) % HIGH
    position = tl.where((pair < FEW)[None, :], column[:, None], row[:, None])
    turns = (token < turned)[:, None] & (first + 2 * tl.arange(0, BN // 2) < rotated)[None, :]
    at = position * FEW + (pair % FEW)[None, :]
    cos = tl.load(table_ptr + at, mask=turns, other=1.0)
    sin = tl.load(table_ptr + max(HIGH, WIDE) * FEW + at, mask=turns, other=0.0)
    return tl.reshape(tl.join(a * cos - b * sin, a * sin + b * cos), (BM, BN))


@triton.jit
def _quads(rows, wide):
    """Rows of a map `wide` across, in the order of its 2 x 2: the four of a quad together."""
    quad, corner = rows // 4, rows % 4
    half = wide // 2
    return (quad // half * 2 + corner // 2) * wide + quad % half * 2 + corner % 2


@triton.jit
def _finish(y, columns, rows, inside, b_ptr, r_ptr, r_stride, r_rows, N,
            ACTIVATION: tl.constexpr, RESIDUAL: tl.constexpr):  # fmt: skip
    """Bias, activation and residual."""
    y += tl.load(b_ptr + columns, mask=columns < N, other=0.0).to(tl.float32)[None, :]
    if ACTIVATION == "gelu":
        y = 0.5 * y * (1.0 + tl.erf(y * 0.7071067811865476))
    elif ACTIVATION == "relu":
        y = tl.maximum(y, 0.0)
    if RESIDUAL:
        places = (rows % r_rows)[:, None] * r_stride + columns[None, :]
        y += tl.load(r_ptr + places, mask=inside, other=0.0).to(tl.float32)
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
def _linear(x_ptr, w_ptr, b_ptr, r_ptr, y_ptr, table_ptr, M, N, K, x_stride, r_stride, y_stride,
            r_rows, eps, tokens, turned, rotated, wide, NORM: tl.constexpr, ACTIVATION: tl.constexpr,
            RESIDUAL: tl.constexpr, POOL: tl.constexpr, ROTATE: tl.constexpr, HIGH: tl.constexpr,
            WIDE: tl.constexpr, FEW: tl.constexpr, EVEN: tl.constexpr, PRECISION: tl.constexpr,
            BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
            GROUP: tl.constexpr):  # fmt: skip
    down, across = _tile(M, N, BM, BN, GROUP)
    rows, columns = down * BM + tl.arange(0, BM), across * BN + tl.arange(0, BN)
    ks = tl.arange(0, BK)
    source, safe_columns = tl.minimum(rows, M - 1), tl.minimum(columns, N - 1)
    if POOL:
        source = _quads(source, wide)
    x_at = x_ptr + source.to(tl.int64)[:, None] * x_stride + ks[None, :]
    w_at = w_ptr + safe_columns[None, :] * K + ks[:, None]
    if NORM:
        mean, spread, count = tl.zeros((BM,), tl.float32), tl.zeros((BM,), tl.float32), 0.0
        for k in range(0, K, BK):
            if EVEN:
                x = tl.load(x_at + k)
            else:
                x = tl.load(x_at + k, mask=(k + ks < K)[None, :], other=0.0)
            x = x.to(tl.float32)
            mean, spread, count = _merge_moments(mean, spread, count, x, k, K, BK, EVEN)
        size = tl.rsqrt(spread / K + eps)
    y = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        if EVEN:
            x, w = tl.load(x_at + k), tl.load(w_at + k)
        else:
            x = tl.load(x_at + k, mask=(k + ks < K)[None, :], other=0.0)
            w = tl.load(w_at + k, mask=(k + ks < K)[:, None], other=0.0)
        if NORM:
            x = (x.to(tl.float32) - mean[:, None]) * size[:, None]
        y = tl.dot(x.to(w.dtype), w, y, input_precision=PRECISION)
    if POOL:
        y = tl.max(tl.reshape(y, (BM // 4, 4, BN)), 1)
        rows, M = down * (BM // 4) + tl.arange(0, BM // 4), M // 4
    inside = (rows < M)[:, None] & (columns < N)[None, :]
    y = _finish(y, columns, rows, inside, b_ptr, r_ptr, r_stride, r_rows, N, ACTIVATION, RESIDUAL)
    if ROTATE:
        y = _rotate(y, rows, columns, table_ptr, tokens, turned, rotated, HIGH, WIDE, FEW, BM, BN)
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
    eps: float = 0.0,
    activation: str = "none",
    rotation: Rotation | None = None,
    out: torch.Tensor,
    blocks: Blocks,
    pool: int = 0,
    precision: str = "tf32",
) -> torch.Tensor:
    """Fill `out` [M, N]; an `eps` of zero leaves the norm out.

    With `pool`, the width of a map, `out` is [M/4, N]; there is no activation then.
    """
    M, K = x.shape
    N = len(weight)
    turn = rotation or _NOTHING
    table = out if rotation is None else rotation.table(x.device)
    added = out if residual is None else residual
    grid = (triton.cdiv(M, blocks.rows) * triton.cdiv(N, blocks.columns),)
    _KERNEL(
        grid, x, weight, bias, added, out, table, M, N, K, x.stride(0), added.stride(0),
        out.stride(0), len(added), eps, turn.tokens, turn.turned, turn.columns, pool,
        NORM=eps > 0, ACTIVATION=activation, RESIDUAL=residual is not None, POOL=pool > 0,
        ROTATE=rotation is not None, HIGH=turn.grid[0], WIDE=turn.grid[1], FEW=turn.frequencies,
        EVEN=K % blocks.depth == 0, PRECISION=precision, BM=blocks.rows, BN=blocks.columns,
        BK=blocks.depth, GROUP=8, warps=blocks.warps, stages=blocks.stages,
    )  # fmt: skip
    return out


_NOTHING = Rotation((1, 1), 1.0, 4, 0, 1, 0)

"""attention: softmax(scale * q @ k.T) @ v in each head, the keys split among programs.

With few queries or one head, programs that each take a block of queries leave most of a GPU
idle. Here a program takes a block of queries and one of several ranges of keys; a second kernel
weighs the partial averages. The width E of a value may differ from the width D of a key.

q [B, T, h*D], k [B, S, h*D], v [B, S, h*E] -> [B, T, h*E]; rows may be strided. A bias
[B, S] may be added to the scores of each key.
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from samgraph.engines.torch.kernels.launch import Kernel, block_width

_LOG2_E = 1.4426950408889634
_ROWS = 32  # that a program combines


@triton.jit
def _attend(q_ptr, k_ptr, v_ptr, b_ptr, o_ptr, l_ptr, heads, T, S, chunk, q_batch, q_row, k_batch,
            k_row, v_batch, v_row, b_batch, scale, BIAS: tl.constexpr, D: tl.constexpr,
            E: tl.constexpr, BD: tl.constexpr, BE: tl.constexpr, BM: tl.constexpr,
            BN: tl.constexpr, EVEN: tl.constexpr, PRECISION: tl.constexpr):  # fmt: skip
    split, batch, head = tl.program_id(1), tl.program_id(2) // heads, tl.program_id(2) % heads
    rows, ds, es = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, BD), tl.arange(0, BE)
    q_at = q_ptr + batch.to(tl.int64) * q_batch + rows[:, None] * q_row + head * D + ds[None, :]
    q = tl.load(q_at, mask=(rows < T)[:, None] & (ds < D)[None, :], other=0.0)
    first = split * chunk
    last = tl.minimum(first + chunk, S)
    keys = first + tl.arange(0, BN)
    k_at = k_ptr + batch.to(tl.int64) * k_batch + keys[None, :] * k_row + head * D + ds[:, None]
    v_at = v_ptr + batch.to(tl.int64) * v_batch + keys[:, None] * v_row + head * E + es[None, :]
    most = tl.full((BM,), float("-inf"), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    y = tl.zeros((BM, BE), tl.float32)
    for at in range(first, last, BN):
        fits = at - first + keys < last
        if EVEN and BD == D:
            k = tl.load(k_at)
        else:
            k = tl.load(k_at, mask=fits[None, :] & (ds < D)[:, None], other=0.0)
        scores = tl.dot(q, k, input_precision=PRECISION) * scale
        if BIAS:
            bias = tl.load(b_ptr + batch * b_batch + at - first + keys, mask=fits, other=0.0)
            scores += bias.to(tl.float32)[None, :] * 1.4426950408889634
        if not EVEN:
            scores = tl.where(fits[None, :], scores, float("-inf"))
        higher = tl.maximum(most, tl.max(scores, 1))
        powers = tl.exp2(scores - higher[:, None])
        shrink = tl.exp2(most - higher)
        total = total * shrink + tl.sum(powers, 1)
        if EVEN and BE == E:
            v = tl.load(v_at)
        else:
            v = tl.load(v_at, mask=fits[:, None] & (es < E)[None, :], other=0.0)
        y = tl.dot(powers.to(v.dtype), v, y * shrink[:, None], input_precision=PRECISION)
        most = higher
        k_at += BN * k_row
        v_at += BN * v_row
    y = y / total[:, None]
    row = (split * tl.num_programs(2) + tl.program_id(2)).to(tl.int64) * T + rows
    tl.store(l_ptr + row, most + tl.log2(total), mask=rows < T)
    row = (split * tl.num_programs(2) + batch * heads).to(tl.int64) * T + rows * heads + head
    tl.store(o_ptr + row[:, None] * E + es[None, :], y.to(o_ptr.dtype.element_ty),
             mask=(rows < T)[:, None] & (es < E)[None, :])  # fmt: skip


@triton.jit
def _combine(o_ptr, l_ptr, y_ptr, heads, T, splits, o_split, o_batch, l_split, l_batch, unit,
             E: tl.constexpr, BE: tl.constexpr, BM: tl.constexpr):  # fmt: skip
    """Partial averages [T, h*E], weighed by the logarithms [h, T] of their sums, times `unit`."""
    batch, head = (tl.program_id(1) // heads).to(tl.int64), tl.program_id(1) % heads
    rows, es = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, BE)
    inside = (rows < T)[:, None] & (es < E)[None, :]
    most = tl.full((BM,), float("-inf"), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    y = tl.zeros((BM, BE), tl.float32)
    for split in range(splits):
        l_at = l_ptr + batch * l_batch + split * l_split + head * T + rows
        size = tl.load(l_at, mask=rows < T, other=0.0) * unit
        o_at = o_ptr + batch * o_batch + split * o_split + (rows * heads + head)[:, None] * E
        part = tl.load(o_at + es[None, :], mask=inside, other=0.0)
        higher = tl.maximum(most, size)
        shrink, weight = tl.exp2(most - higher), tl.exp2(size - higher)
        y = y * shrink[:, None] + part.to(tl.float32) * weight[:, None]
        total = total * shrink + weight
        most = higher
    row = batch * heads * T + rows * heads + head
    y = (y / total[:, None]).to(y_ptr.dtype.element_ty)
    tl.store(y_ptr + row[:, None] * E + es[None, :], y, mask=inside)


_ATTEND, _COMBINE = Kernel(_attend), Kernel(_combine)


@dataclass(frozen=True, slots=True)
class Blocks:
    """Queries and keys of a program's step, warps, stages of loading, ranges of keys."""

    queries: int
    keys: int
    warps: int
    stages: int
    splits: int


def attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    bias: torch.Tensor | None = None,
    *,
    heads: int,
    scale: float,
    blocks: Blocks,
    precision: str = "tf32",
) -> torch.Tensor:
    """[B, T, h*E], of the dtype of `v`. The last axis of all three is contiguous."""
    B, T, S = len(q), q.shape[1], k.shape[1]
    D, E = q.shape[2] // heads, v.shape[2] // heads
    chunk = triton.cdiv(triton.cdiv(S, blocks.splits), blocks.keys) * blocks.keys
    splits = triton.cdiv(S, chunk)
    y = torch.empty((B, T, heads * E), dtype=v.dtype, device=v.device)
    parts = y if splits == 1 else torch.empty((splits, *y.shape), device=v.device)
    sizes = torch.empty((splits, B * heads, T), dtype=torch.float32, device=v.device)
    _ATTEND(
        (triton.cdiv(T, blocks.queries), splits, B * heads),
        q, k, v, sizes if bias is None else bias, parts, sizes, heads, T, S, chunk, q.stride(0),
        q.stride(1), k.stride(0), k.stride(1), v.stride(0), v.stride(1),
        0 if bias is None else bias.stride(0), scale * _LOG2_E, BIAS=bias is not None, D=D, E=E,
        BD=block_width(D), BE=block_width(E), BM=blocks.queries, BN=blocks.keys,
        EVEN=S % blocks.keys == 0, PRECISION=precision, warps=blocks.warps, stages=blocks.stages,
    )  # fmt: skip
    if splits > 1:
        strides = (parts.stride(0), parts.stride(1), B * heads * T, heads * T, 1.0)
        _COMBINE(
            (triton.cdiv(T, _ROWS), B * heads),
            parts, sizes, y, heads, T, splits, *strides, E=E, BE=block_width(E), BM=_ROWS,
        )  # fmt: skip
    return y


def combine(
    parts: torch.Tensor, sizes: torch.Tensor, batch: int, splits: int, heads: int
) -> torch.Tensor:
    """Averages over ranges of keys [B*splits, T, h*E], ranges of a batch together -> [B, T, h*E].

    `sizes` are natural logarithms of the sums of their powers, B*splits*h*T of them.
    """
    T, wide = parts.shape[1:]
    E = wide // heads
    y = torch.empty((batch, T, wide), dtype=parts.dtype, device=parts.device)
    parts = parts if parts.is_contiguous() else parts.contiguous()
    strides = (T * wide, splits * T * wide, heads * T, splits * heads * T, _LOG2_E)
    _COMBINE(
        (triton.cdiv(T, _ROWS), batch * heads),
        parts, sizes, y, heads, T, splits, *strides, E=E, BE=block_width(E), BM=_ROWS,
    )  # fmt: skip
    return y

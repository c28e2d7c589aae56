"""window_attention: attention inside the windows of a map, read and written in place.

A program takes the queries of one head in one window, or in several small windows, and loops over
their keys; scores across windows are masked. Windows that reach beyond the map hold padded tokens
there, whose key and value are the biases of the two projections. Where queries are pooled, their
map and their windows have half the side.

q [B, H, W, h*D] or [B, H/2, W/2, h*D]; k, v [B, H, W, h*D] -> as q.
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from samgraph.engines.torch.kernels.launch import Kernel, block_width

Pair = tuple[int, int]
_LOG2_E = 1.4426950408889634


@triton.jit
def _tokens(start, count, H, W, across, windows, HIGH: tl.constexpr, WIDE: tl.constexpr,
            PAD: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    """Of BLOCK tokens from `start` on: row in the map, window, whether it exists, is in the map.

    Tokens are counted in windows of PAD, of which HIGH x WIDE exist.
    """
    number = start + tl.arange(0, BLOCK)
    window, token = number // PAD, number % PAD
    image, inner = window // windows, window % windows
    y = inner // across * HIGH + token // WIDE
    x = inner % across * WIDE + token % WIDE
    real = (token < HIGH * WIDE) & (window < count)
    inside = real & (y < H) & (x < W)
    return (image * H + y).to(tl.int64) * W + x, window, real, inside


@triton.jit
def _side(ptr, bias_ptr, position, real, inside, row, head, D: tl.constexpr, BD: tl.constexpr,
          PADDED: tl.constexpr):  # fmt: skip
    """Keys or values [BLOCK, BD], the bias where a token is outside the map."""
    ds = tl.arange(0, BD)
    held = tl.load(ptr + position[:, None] * row + head * D + ds[None, :],
                   mask=inside[:, None] & (ds < D)[None, :], other=0.0)  # fmt: skip
    if PADDED:
        bias = tl.load(bias_ptr + head * D + ds, mask=ds < D, other=0.0).to(held.dtype)
        held = tl.where((real & (inside == 0))[:, None], bias[None, :], held)
    return held


@triton.jit
def _window_attention(q_ptr, k_ptr, v_ptr, kb_ptr, vb_ptr, y_ptr, count, H, W, across, windows,
                      q_row, k_row, v_row, y_row, scale, D: tl.constexpr, BD: tl.constexpr,
                      HIGH: tl.constexpr, WIDE: tl.constexpr, POOL: tl.constexpr,
                      PADDED: tl.constexpr, PAD: tl.constexpr, Q_PAD: tl.constexpr,
                      BQ: tl.constexpr, BK: tl.constexpr, STEPS: tl.constexpr,
                      PRECISION: tl.constexpr):  # fmt: skip
    head, ds = tl.program_id(1), tl.arange(0, BD)
    start = tl.program_id(0) * BQ
    position, window, _, inside = _tokens(
        start, count, H // POOL, W // POOL, across, windows, HIGH // POOL, WIDE // POOL, Q_PAD, BQ
    )
    shown = inside[:, None] & (ds < D)[None, :]
    q = tl.load(q_ptr + position[:, None] * q_row + head * D + ds[None, :], mask=shown, other=0.0)
    most, total = tl.full((BQ,), -1e30, tl.float32), tl.zeros((BQ,), tl.float32)
    y = tl.zeros((BQ, BD), tl.float32)
    for step in range(STEPS):
        k_position, k_window, real, k_inside = _tokens(
            start // Q_PAD * PAD + step * BK, count, H, W, across, windows, HIGH, WIDE, PAD, BK
        )
        k = _side(k_ptr, kb_ptr, k_position, real, k_inside, k_row, head, D, BD, PADDED)
        scores = tl.dot(q, tl.trans(k), input_precision=PRECISION) * scale
        fits = real[None, :] & (window[:, None] == k_window[None, :])
        scores = tl.where(fits, scores, -1e30)
        higher = tl.maximum(most, tl.max(scores, 1))
        powers, shrink = tl.exp2(scores - higher[:, None]), tl.exp2(most - higher)
        total = total * shrink + tl.sum(powers, 1)
        v = _side(v_ptr, vb_ptr, k_position, real, k_inside, v_row, head, D, BD, PADDED)
        y = tl.dot(powers.to(v.dtype), v, y * shrink[:, None], input_precision=PRECISION)
        most = higher
    y_at = y_ptr + position[:, None] * y_row + head * D + ds[None, :]
    tl.store(y_at, (y / total[:, None]).to(y_ptr.dtype.element_ty), mask=shown)


_KERNEL = Kernel(_window_attention)


@dataclass(frozen=True, slots=True)
class Blocks:
    """Queries of a program, keys of a step, warps, stages of loading."""

    queries: int
    keys: int
    warps: int
    stages: int


def window_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    k_bias: torch.Tensor,
    v_bias: torch.Tensor,
    *,
    heads: int,
    scale: float,
    window: Pair,
    blocks: Blocks,
    precision: str = "tf32",
) -> torch.Tensor:
    """[B, H', W', h*D] as `q`. Channels and rows of a map are contiguous."""
    B, H, W, C = k.shape
    pool, D = H // q.shape[1], C // heads
    down, across = triton.cdiv(H, window[0]), triton.cdiv(W, window[1])
    tokens, count = window[0] * window[1], B * down * across
    pad, q_pad = triton.next_power_of_2(tokens), triton.next_power_of_2(tokens // pool**2)
    block = max(16, q_pad if q_pad < blocks.queries and count == 1 else blocks.queries)
    all_keys = max(16, pad * max(1, block // q_pad))
    step = min(blocks.keys, all_keys)
    y = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    _KERNEL(
        (triton.cdiv(count * q_pad, block), heads),
        q, k, v, k_bias, v_bias, y, count, H, W, across, down * across, q.stride(2), k.stride(2),
        v.stride(2), y.stride(2), scale * _LOG2_E, D=D, BD=block_width(D),
        HIGH=window[0], WIDE=window[1], POOL=pool, PADDED=H % window[0] + W % window[1] > 0,
        PAD=pad, Q_PAD=q_pad, BQ=block, BK=step, STEPS=all_keys // step, PRECISION=precision,
        warps=blocks.warps, stages=blocks.stages,
    )  # fmt: skip
    return y

"""upscale_masks: the second half of the mask decoder's upscaling, and the masks.

A program takes some cells, each four rows of `x` [N, 4*E*E, A] (see `ops/upscale_masks.py`): adds
feat_s1, normalises, makes each row four pixels, and multiplies these by hyper_in. All of that
stays in registers; only pixels of masks are written.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from samgraph.engines.torch.kernels.activations import gelu
from samgraph.engines.torch.kernels.launch import Kernel, block_width


@triton.jit
def _upscale(x_ptr, c_ptr, scale_ptr, shift_ptr, w_ptr, b_ptr, f_ptr, t_ptr, y_ptr, cells, side,
             masks, eps, c_batch, c_y, c_x, c_i, c_j, c_c, f_batch, f_y, f_x, f_i, f_j, f_k, f_m,
             f_c, A: tl.constexpr, B: tl.constexpr, BM: tl.constexpr, BT: tl.constexpr,
             PRECISION: tl.constexpr):  # fmt: skip
    image, first = tl.program_id(1).to(tl.int64), tl.program_id(0) * BM
    rows, cs = tl.arange(0, BM * 4), tl.arange(0, A)
    cell = tl.minimum(first + rows // 4, cells - 1)
    offset = cell // side * c_y + cell % side * c_x + rows // 2 % 2 * c_i + rows % 2 * c_j
    row = image * cells * 4 + cell * 4 + rows % 4
    x = tl.load(x_ptr + row[:, None] * A + cs[None, :]).to(tl.float32)
    x += tl.load(c_ptr + image * c_batch + offset[:, None] + cs[None, :] * c_c).to(tl.float32)
    x -= (tl.sum(x, 1) / A)[:, None]
    x *= tl.rsqrt(tl.sum(x * x, 1) / A + eps)[:, None]
    x = gelu(x * tl.load(scale_ptr + cs)[None, :] + tl.load(shift_ptr + cs)[None, :])
    columns = tl.arange(0, 4 * B)
    w = tl.load(w_ptr + columns[None, :] * A + cs[:, None])
    x = tl.dot(x.to(w.dtype), w, input_precision=PRECISION)
    x = tl.reshape(x + tl.load(b_ptr + columns).to(tl.float32)[None, :], (BM * 16, B))
    rows, cs = tl.arange(0, BM * 16), tl.arange(0, B)
    cell = first + rows // 16
    i, j, k, m = rows // 8 % 2, rows // 4 % 2, rows // 2 % 2, rows % 2
    safe = tl.minimum(cell, cells - 1)
    offset = safe // side * f_y + safe % side * f_x + i * f_i + j * f_j + k * f_k + m * f_m
    x += tl.load(f_ptr + image * f_batch + offset[:, None] + cs[None, :] * f_c).to(tl.float32)
    ts = tl.arange(0, BT)
    t = tl.load(t_ptr + (image * masks + ts[None, :]) * B + cs[:, None],
                mask=(ts < masks)[None, :], other=0.0)  # fmt: skip
    y = tl.dot(gelu(x).to(t.dtype), t, input_precision=PRECISION)
    pixel = (cell // side * 4 + i * 2 + k) * side * 4 + cell % side * 4 + j * 2 + m
    y_at = y_ptr + (image * masks + ts[None, :]) * cells * 16 + pixel[:, None]
    inside = (cell < cells)[:, None] & (ts < masks)[None, :]
    tl.store(y_at, y.to(y_ptr.dtype.element_ty), mask=inside)


_KERNEL = Kernel(_upscale)


@dataclass(frozen=True, slots=True)
class Blocks:
    """Cells of a program, and warps."""

    rows: int
    warps: int


def upscale_masks(
    x: torch.Tensor,
    feat_s1: torch.Tensor,
    scale: torch.Tensor,
    shift: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    feat_s0: torch.Tensor,
    hyper_in: torch.Tensor,
    *,
    eps: float,
    side: int,
    blocks: Blocks,
    precision: str = "tf32",
) -> torch.Tensor:
    """[N, m, 4E, 4E], with `side` E, of a contiguous x [N, 4*E*E, A]."""
    N, rows, A = x.shape
    B, count, cells = len(weight) // 4, hyper_in.shape[1], rows // 4
    y = torch.empty((N, count, 4 * side, 4 * side), dtype=x.dtype, device=x.device)
    _KERNEL(
        (triton.cdiv(cells, blocks.rows), N),
        x, feat_s1, scale, shift, weight, bias, feat_s0, hyper_in, y, cells, side, count, eps,
        *_strides(feat_s1, side, 1), *_strides(feat_s0, side, 2), A=A, B=B, BM=blocks.rows,
        BT=block_width(count), PRECISION=precision,
        warps=blocks.warps, stages=2,
    )  # fmt: skip
    return y


def _strides(x: torch.Tensor, side: int, times: int) -> Sequence[int]:
    """Strides of image, row, cell, part of a cell, ..., channel.

    A feature map is [M, A, H, H], or a list of cells [M, H*H, A] in nested order.
    """
    batch = 0 if len(x) == 1 else x.stride(0)
    if x.ndim == 4:
        down, right = x.stride(2), x.stride(3)
        halves = [2**step for step in range(times - 1, -1, -1)]
        parts = [step for half in halves for step in (down * half, right * half)]
        return (batch, down * 2**times, right * 2**times, *parts, x.stride(1))
    row = x.stride(1)
    parts = [row << step for step in range(2 * times - 1, -1, -1)]
    return (batch, (row << 2 * times) * side, row << 2 * times, *parts, x.stride(2))

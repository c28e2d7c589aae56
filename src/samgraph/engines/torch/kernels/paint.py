"""paint_masks: an image grows four times larger and becomes masks, without a trace in memory.

A program takes some cells of the image [N, E*E, C] through all of it (see `ops/paint_masks.py`):
each cell becomes four, then sixteen pixels, held in registers; only pixels of masks are written.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from samgraph.engines.torch.kernels.activations import gelu
from samgraph.engines.torch.kernels.launch import Kernel

_BRUSHES = 16  # the fewest columns that the matrix units take


@triton.jit
def _grow(x_ptr, w_ptr, b_ptr, first, cells, C: tl.constexpr, A: tl.constexpr, BM: tl.constexpr,
          BK: tl.constexpr, PRECISION: tl.constexpr):  # fmt: skip
    """A linear layer of BM cells: [BM, 4*A]."""
    rows, columns, ks = first + tl.arange(0, BM), tl.arange(0, 4 * A), tl.arange(0, BK)
    y = tl.zeros((BM, 4 * A), tl.float32)
    for k in range(0, C, BK):
        x = tl.load(x_ptr + rows[:, None] * C + k + ks[None, :], mask=(rows < cells)[:, None],
                    other=0.0)  # fmt: skip
        w = tl.load(w_ptr + columns[None, :] * C + k + ks[:, None])
        y = tl.dot(x.to(w.dtype), w, y, input_precision=PRECISION)
    return y + tl.load(b_ptr + columns).to(tl.float32)[None, :]


@triton.jit
def _paint(x_ptr, w_ptr, b_ptr, c_ptr, scale_ptr, shift_ptr, w2_ptr, b2_ptr, f_ptr, t_ptr, y_ptr,
           cells, side, brushes, eps, c_batch, c_y, c_x, c_i, c_j, c_c, f_batch, f_y, f_x, f_i,
           f_j, f_k, f_m, f_c, C: tl.constexpr, A: tl.constexpr, B: tl.constexpr,
           BM: tl.constexpr, BK: tl.constexpr, BT: tl.constexpr,
           PRECISION: tl.constexpr):  # fmt: skip
    image, first = tl.program_id(1).to(tl.int64), tl.program_id(0) * BM
    x = _grow(x_ptr + image * cells * C, w_ptr, b_ptr, first, cells, C, A, BM, BK, PRECISION)
    x = tl.reshape(x, (BM * 4, A))
    rows, cs = tl.arange(0, BM * 4), tl.arange(0, A)
    cell = tl.minimum(first + rows // 4, cells - 1)
    place = cell // side * c_y + cell % side * c_x + rows // 2 % 2 * c_i + rows % 2 * c_j
    at = c_ptr + image * c_batch + place[:, None] + cs[None, :] * c_c
    x += tl.load(at).to(tl.float32)
    x -= (tl.sum(x, 1) / A)[:, None]
    x *= tl.rsqrt(tl.sum(x * x, 1) / A + eps)[:, None]
    x = gelu(x * tl.load(scale_ptr + cs)[None, :] + tl.load(shift_ptr + cs)[None, :])
    columns = tl.arange(0, 4 * B)
    w = tl.load(w2_ptr + columns[None, :] * A + cs[:, None])
    x = tl.dot(x.to(w.dtype), w, input_precision=PRECISION)
    x = tl.reshape(x + tl.load(b2_ptr + columns).to(tl.float32)[None, :], (BM * 16, B))
    rows, cs = tl.arange(0, BM * 16), tl.arange(0, B)
    cell = first + rows // 16
    i, j, k, m = rows // 8 % 2, rows // 4 % 2, rows // 2 % 2, rows % 2
    safe = tl.minimum(cell, cells - 1)
    place = safe // side * f_y + safe % side * f_x + i * f_i + j * f_j + k * f_k + m * f_m
    x += tl.load(f_ptr + image * f_batch + place[:, None] + cs[None, :] * f_c).to(tl.float32)
    ts = tl.arange(0, BT)
    t = tl.load(t_ptr + (image * brushes + ts[None, :]) * B + cs[:, None],
                mask=(ts < brushes)[None, :], other=0.0)  # fmt: skip
    y = tl.dot(gelu(x).to(t.dtype), t, input_precision=PRECISION)
    pixel = (cell // side * 4 + i * 2 + k) * side * 4 + cell % side * 4 + j * 2 + m
    y_at = y_ptr + (image * brushes + ts[None, :]) * cells * 16 + pixel[:, None]
    shown = (cell < cells)[:, None] & (ts < brushes)[None, :]
    tl.store(y_at, y.to(y_ptr.dtype.element_ty), mask=shown)


_KERNEL = Kernel(_paint)


@dataclass(frozen=True, slots=True)
class Blocks:
    """Cells of a program, and warps."""

    rows: int
    warps: int


def paint_masks(
    image: torch.Tensor,
    grow: torch.Tensor,
    grow_bias: torch.Tensor,
    coarse: torch.Tensor,
    scale: torch.Tensor,
    shift: torch.Tensor,
    again: torch.Tensor,
    again_bias: torch.Tensor,
    fine: torch.Tensor,
    brushes: torch.Tensor,
    *,
    eps: float,
    side: int,
    blocks: Blocks,
    precision: str = "tf32",
) -> torch.Tensor:
    """[N, m, 4E, 4E], with `side` E. The image's cells lie one behind another."""
    N, cells, C = image.shape
    A, B, count = len(grow) // 4, len(again) // 4, brushes.shape[1]
    y = torch.empty((N, count, 4 * side, 4 * side), dtype=image.dtype, device=image.device)
    _KERNEL(
        (triton.cdiv(cells, blocks.rows), N),
        image, grow, grow_bias, coarse, scale, shift, again, again_bias, fine, brushes, y, cells,
        side, count, eps, *_steps(coarse, side, 1), *_steps(fine, side, 2), C=C, A=A, B=B,
        BM=blocks.rows, BK=min(C, 32), BT=max(_BRUSHES, triton.next_power_of_2(count)),
        PRECISION=precision, warps=blocks.warps, stages=2,
    )  # fmt: skip
    return y


def _steps(x: torch.Tensor, side: int, times: int) -> Sequence[int]:
    """How far it is in memory to the next image, row, cell, part of a cell, ..., channel.

    A finer map is [M, A, H, H], or a list [M, H*H, A] in the order in which cells grow.
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

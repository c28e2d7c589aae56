"""bank_rows: what attention reads of a paged memory bank, with or without positions.

A program copies some rows of one object: of the page of a frame, or of the tokens after all
frames. The pages are read through an address kept on the device (see `tables.py`). frames and slots
[N, F], tokens and positions [N, K, c], times [S, c], grid [T, c] -> [N, F*T+K, c].
"""

import torch
import triton
import triton.language as tl

from samgraph.engines.torch.kernels.launch import Kernel, block_width
from samgraph.engines.torch.kernels.tables import HELD

_ROWS = 64


@triton.jit
def _bank_rows(a_ptr, f_ptr, t_ptr, times_ptr, slot_ptr, grid_ptr, p_ptr, y_ptr, frames, T, K,
               times, HELD: tl.constexpr, POSITIONS: tl.constexpr, C: tl.constexpr,
               BC: tl.constexpr, BM: tl.constexpr):  # fmt: skip
    number = tl.program_id(1).to(tl.int64)
    rows, cs = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, BC)
    here, end = (cs < C)[None, :], frames * T
    frame, cell = rows // T, rows % T
    of_page, of_token = rows < end, (rows >= end) & (rows < end + K)
    pages = tl.load(a_ptr).to(tl.pointer_type(HELD))
    count = tl.load(a_ptr + 1)
    page = tl.load(f_ptr + number * frames + frame, mask=of_page, other=-1)
    exists = of_page & (page < count) & (page >= -count)
    page = tl.where(page < 0, page + count, page)
    at = (page * T + cell)[:, None] * C + cs[None, :]
    y = tl.load(pages + at, mask=exists[:, None] & here, other=0.0).to(tl.float32)
    token_at = (number * K + rows - end)[:, None] * C + cs[None, :]
    y += tl.load(t_ptr + token_at, mask=of_token[:, None] & here, other=0.0).to(tl.float32)
    if POSITIONS:
        slot = tl.load(slot_ptr + number * frames + frame, mask=of_page, other=-times - 1)
        known = of_page & (slot < times) & (slot >= -times)
        slot = tl.where(slot < 0, slot + times, slot)
        slot_at = slot[:, None] * C + cs[None, :]
        y += tl.load(times_ptr + slot_at, mask=known[:, None] & here, other=0.0).to(tl.float32)
        cell_at = cell[:, None] * C + cs[None, :]
        y += tl.load(grid_ptr + cell_at, mask=of_page[:, None] & here, other=0.0).to(tl.float32)
        y += tl.load(p_ptr + token_at, mask=of_token[:, None] & here, other=0.0).to(tl.float32)
    y_at = y_ptr + (number * (end + K) + rows)[:, None] * C + cs[None, :]
    tl.store(y_at, y.to(y_ptr.dtype.element_ty), mask=(rows < end + K)[:, None] & here)


_KERNEL = Kernel(_bank_rows)


def bank_rows(
    address: torch.Tensor,
    dtype: torch.dtype,
    frames: torch.Tensor,
    tokens: torch.Tensor,
    positions: tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor] | None = None,
    *,
    out: torch.Tensor,
) -> torch.Tensor:
    """Fill `out`; `positions` are times, slots, grid and positions of tokens, all contiguous."""
    (N, F), (K, C) = frames.shape, tokens.shape[1:]
    rows = out.shape[1]
    T = (rows - K) // F
    times, slots, grid, of_tokens = positions or (tokens, frames, tokens, tokens)
    _KERNEL(
        (triton.cdiv(rows, _ROWS), N),
        address, frames, tokens, times, slots, grid, of_tokens, out, F, T, K, len(times),
        HELD=HELD[dtype], POSITIONS=positions is not None, C=C,
        BC=block_width(C), BM=_ROWS,
    )  # fmt: skip
    return out

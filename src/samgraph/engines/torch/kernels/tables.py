"""Rows by number, zeros where there is no such row; negative numbers count from the end.

gather_rows   of a table [P, L] whose address is kept on the device: index [n] -> [n, L]
take_rows     of several tables at once: x [B, P, L], index [B, n] -> [B, n, L]
"""

import torch
import triton
import triton.language as tl

from samgraph.engines.torch.kernels.launch import Kernel

_BLOCK = 4096


@triton.jit
def _copy_row(table, row, rows, stride, length, y_ptr, BLOCK: tl.constexpr):
    row = tl.where(row < 0, row + rows, row)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    end = tl.where((row >= 0) & (row < rows), length, 0)
    x = tl.load(table + row * stride + at, mask=at < end, other=0.0)
    y_at = y_ptr + tl.program_id(0).to(tl.int64) * length + at
    tl.store(y_at, x.to(y_ptr.dtype.element_ty), mask=at < length)


@triton.jit
def _gather_rows(a_ptr, i_ptr, y_ptr, length, HELD: tl.constexpr, BLOCK: tl.constexpr):
    """a_ptr: the address of the table, and how many rows it has."""
    table = tl.load(a_ptr).to(tl.pointer_type(HELD))
    row = tl.load(i_ptr + tl.program_id(0))
    _copy_row(table, row, tl.load(a_ptr + 1), length, length, y_ptr, BLOCK)


@triton.jit
def _take_rows(x_ptr, i_ptr, y_ptr, rows, x_batch, x_row, length, count, BLOCK: tl.constexpr):
    table = x_ptr + (tl.program_id(0) // count).to(tl.int64) * x_batch
    row = tl.load(i_ptr + tl.program_id(0)).to(tl.int64)
    _copy_row(table, row, rows, x_row, length, y_ptr, BLOCK)


_GATHER, _TAKE = Kernel(_gather_rows), Kernel(_take_rows)
HELD = {torch.float32: tl.float32, torch.bfloat16: tl.bfloat16, torch.float16: tl.float16}


def gather_rows(
    address: torch.Tensor, index: torch.Tensor, dtype: torch.dtype, out: torch.Tensor
) -> torch.Tensor:
    """Fill `out` [n, L] from a table held as `dtype`; `address` is its address and row count."""
    length = out.shape[1]
    block = min(_BLOCK, triton.next_power_of_2(length))
    _GATHER(
        (len(index), triton.cdiv(length, block)), address, index, out, length,
        HELD=HELD[dtype], BLOCK=block,
    )  # fmt: skip
    return out


def take_rows(x: torch.Tensor, index: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    """Fill `out` [B, n, L]; index, out and each row of x are contiguous."""
    _, rows, length = x.shape
    block = min(_BLOCK, triton.next_power_of_2(length))
    _TAKE(
        (index.numel(), triton.cdiv(length, block)), x, index, out, rows, x.stride(0),
        x.stride(1), length, index.shape[1], BLOCK=block,
    )  # fmt: skip
    return out

"""gather_rows: rows of a table by number, the table behind an address kept on the device.

A row that does not exist is zeros; negative numbers count from the end. table [P, L], index [n]
-> [n, L], in the dtype asked for.
"""

import triton
import triton.language as tl
import torch

from samgraph.engines.torch.kernels.launch import Kernel

_BLOCK = 4096


@triton.jit
def _gather_rows(a_ptr, i_ptr, y_ptr, length, HELD: tl.constexpr, BLOCK: tl.constexpr):
    """a_ptr: the address of the table, and how many rows it has."""
    table = tl.load(a_ptr).to(tl.pointer_type(HELD))
    rows = tl.load(a_ptr + 1)
    row = tl.load(i_ptr + tl.program_id(0))
    row = tl.where(row < 0, row + rows, row)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    exists = (row >= 0) & (row < rows) & (at < length)
    x = tl.load(table + row * length + at, mask=exists, other=0.0)
    y_at = y_ptr + tl.program_id(0).to(tl.int64) * length + at
    tl.store(y_at, x.to(y_ptr.dtype.element_ty), mask=at < length)


_KERNEL = Kernel(_gather_rows)
_HELD = {torch.float32: tl.float32, torch.bfloat16: tl.bfloat16, torch.float16: tl.float16}


def gather_rows(
    address: torch.Tensor, dtype: torch.dtype, index: torch.Tensor, length: int, out: torch.Tensor
) -> torch.Tensor:
    """Fill `out` [n, length] with rows of `length` elements that are held as `dtype`."""
    _KERNEL(
        (len(index), triton.cdiv(length, _BLOCK)), address, index, out, length,
        HELD=_HELD[dtype], BLOCK=_BLOCK,
    )  # fmt: skip
    return out

"""rotate: axial RoPE of the first columns of rows, in place.

Heads are in halves, as `row_linear.rotated_linear` has them: a pair is one column of each half.
y [M, N], of which `rotation.Rotation` says which columns and rows are rotated.
"""

import torch
import triton
import triton.language as tl

from samgraph.engines.torch.kernels.launch import Kernel
from samgraph.engines.torch.kernels.rotation import Rotation


@triton.jit
def angles(table_ptr, rows, tokens, rotary, HIGH: tl.constexpr, WIDE: tl.constexpr,
          FEW: tl.constexpr):  # fmt: skip
    """Cosines and sines of the angles of each row: [BM, 2*FEW] of a table [2, side, FEW]."""
    pairs, token = tl.arange(0, 2 * FEW), rows % tokens
    column, row = token % WIDE, (token // WIDE) % HIGH
    position = tl.where((pairs < FEW)[None, :], column[:, None], row[:, None])
    at = position * FEW + (pairs % FEW)[None, :]
    held = (token < rotary)[:, None]
    cos = tl.load(table_ptr + at, mask=held, other=1.0)
    return cos, tl.load(table_ptr + max(HIGH, WIDE) * FEW + at, mask=held, other=0.0)


@triton.jit
def _rotate(y_ptr, table_ptr, M, y_stride, heads, tokens, rotary, HIGH: tl.constexpr,
            WIDE: tl.constexpr, FEW: tl.constexpr, BM: tl.constexpr):  # fmt: skip
    rows, pairs = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, 2 * FEW)
    cos, sin = angles(table_ptr, rows, tokens, rotary, HIGH, WIDE, FEW)
    inside = (rows < M)[:, None]
    at = y_ptr + rows.to(tl.int64)[:, None] * y_stride + pairs[None, :]
    for head in range(heads):
        a_at = at + head * 4 * FEW
        a = tl.load(a_at, mask=inside, other=0.0).to(tl.float32)
        b = tl.load(a_at + 2 * FEW, mask=inside, other=0.0).to(tl.float32)
        tl.store(a_at, (a * cos - b * sin).to(y_ptr.dtype.element_ty), mask=inside)
        tl.store(a_at + 2 * FEW, (a * sin + b * cos).to(y_ptr.dtype.element_ty), mask=inside)


_KERNEL = Kernel(_rotate)
_ROWS = 16


def rotate(y: torch.Tensor, rotation: Rotation) -> torch.Tensor:
    """Rotate the rows of `y` [M, N] in place; returns `y`."""
    M = len(y)
    _KERNEL(
        (triton.cdiv(M, _ROWS),),
        y, rotation.table(y.device), M, y.stride(0), rotation.columns // rotation.width,
        rotation.tokens, rotation.rotary, HIGH=rotation.grid[0], WIDE=rotation.grid[1],
        FEW=rotation.frequencies, BM=_ROWS,
    )  # fmt: skip
    return y

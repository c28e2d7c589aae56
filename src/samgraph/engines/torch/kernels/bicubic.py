"""frame_pixels: frames resized to the bit as Pillow does, and normalised (see `../bicubic.py`).

Two kernels, one for each axis, in the order that Pillow takes; the second looks up the
normalised value of a byte: bytes [H, W, 3] -> bytes [H, S, 3] or [S, W, 3] -> float32 [3, S, S].
"""

import torch
import triton
import triton.language as tl

from samgraph.engines.torch.bicubic import (
    BITS,
    Normalisation,
    byte_values,
    rows_come_first,
    taps,
)
from samgraph.engines.torch.kernels.launch import Kernel

_BLOCK = 1024


@triton.jit
def _put(total, y_ptr, table_ptr, row, at, width, inside, S, LAST: tl.constexpr,
         BITS: tl.constexpr):  # fmt: skip
    """Sums as bytes, or in the end as numbers, channel by channel."""
    byte = tl.minimum(tl.maximum(total >> BITS, 0), 255)
    if LAST:
        channel = at % 3
        value = tl.load(table_ptr + channel * 256 + byte, mask=inside, other=0.0)
        tl.store(y_ptr + (channel * S + row) * S + at // 3, value, mask=inside)
    else:
        tl.store(y_ptr + row * width * 3 + at, byte.to(tl.uint8), mask=inside)


@triton.jit
def _columns(x_ptr, first_ptr, w_ptr, table_ptr, y_ptr, W, S, K, LAST: tl.constexpr,
             BITS: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    """One row with W pixels becomes one with S."""
    row = tl.program_id(1).to(tl.int64)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < S * 3
    column, channel = at // 3, at % 3
    first = tl.load(first_ptr + column, mask=inside, other=0)
    total = tl.full((BLOCK,), 1 << (BITS - 1), tl.int32)
    for tap in range(K):
        weight = tl.load(w_ptr + column * K + tap, mask=inside, other=0)
        source = tl.minimum(first + tap, W - 1) * 3 + channel
        total += tl.load(x_ptr + row * W * 3 + source, mask=inside, other=0).to(tl.int32) * weight
    _put(total, y_ptr, table_ptr, row, at, S, inside, S, LAST, BITS)


@triton.jit
def _rows(x_ptr, first_ptr, w_ptr, table_ptr, y_ptr, H, W, S, K, LAST: tl.constexpr,
          BITS: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    """One row of the result, from some of the H rows of W pixels."""
    row = tl.program_id(1).to(tl.int64)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < W * 3
    first = tl.load(first_ptr + row)
    total = tl.full((BLOCK,), 1 << (BITS - 1), tl.int32)
    for tap in range(K):
        weight = tl.load(w_ptr + row * K + tap)
        source = tl.minimum(first + tap, H - 1).to(tl.int64) * W * 3
        total += tl.load(x_ptr + source + at, mask=inside, other=0).to(tl.int32) * weight
    _put(total, y_ptr, table_ptr, row, at, W, inside, S, LAST, BITS)


_COLUMNS, _ROWS = Kernel(_columns), Kernel(_rows)


def frame_pixels(frame: torch.Tensor, size: int, norm: Normalisation) -> torch.Tensor:
    """Bytes [H, W, 3], contiguous -> float32 [3, S, S]."""
    (height, width), device = frame.shape[:2], frame.device
    rows_first = rows_come_first(height, width, size)
    table, out = byte_values(norm, device), torch.empty((3, size, size), device=device)
    shape = (size, width, 3) if rows_first else (height, size, 3)
    between = torch.empty(shape, dtype=torch.uint8, device=device)
    columns, rows = (taps(length, size, device) for length in (width, height))
    steps = [
        (_COLUMNS, size, len(between), columns, (width, size)),
        (_ROWS, shape[1], size, rows, (height, shape[1], size)),
    ]
    source, target = frame, between
    for number, (kernel, wide, high, along, lengths) in enumerate(
        reversed(steps) if rows_first else steps
    ):
        target = out if number else between
        kernel(
            (triton.cdiv(wide * 3, _BLOCK), high), source, along.first, along.weights, table,
            target, *lengths, along.weights.shape[1], LAST=bool(number), BITS=BITS, BLOCK=_BLOCK,
        )  # fmt: skip
        source = between
    return out

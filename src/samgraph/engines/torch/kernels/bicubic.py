"""frame_pixels: frames resized to the bit as Pillow does, and normalised (see `../bicubic.py`).

bytes [H, W, 3] -> columns resized, bytes [H, S, 3] -> rows resized, looked up: float32 [3, S, S]
"""

import torch
import triton
import triton.language as tl

from samgraph.engines.torch.bicubic import BITS, Normalisation, byte_values, taps
from samgraph.engines.torch.kernels.launch import Kernel

_BLOCK = 1024


@triton.jit
def _byte(total, BITS: tl.constexpr):
    return tl.minimum(tl.maximum(total >> BITS, 0), 255)


@triton.jit
def _columns(x_ptr, first_ptr, w_ptr, y_ptr, W, S, K, BITS: tl.constexpr,
             BLOCK: tl.constexpr):  # fmt: skip
    """One row of the frame; elements of the output are columns and channels."""
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
    tl.store(y_ptr + row * S * 3 + at, _byte(total, BITS).to(tl.uint8), mask=inside)


@triton.jit
def _rows(x_ptr, first_ptr, w_ptr, table_ptr, y_ptr, H, S, K, BITS: tl.constexpr,
          BLOCK: tl.constexpr):  # fmt: skip
    """One row of the output, looked up in the table of its channel."""
    row = tl.program_id(1)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < S * 3
    first = tl.load(first_ptr + row)
    total = tl.full((BLOCK,), 1 << (BITS - 1), tl.int32)
    for tap in range(K):
        weight = tl.load(w_ptr + row * K + tap)
        source = tl.minimum(first + tap, H - 1).to(tl.int64) * S * 3
        total += tl.load(x_ptr + source + at, mask=inside, other=0).to(tl.int32) * weight
    column, channel = at // 3, at % 3
    value = tl.load(table_ptr + channel * 256 + _byte(total, BITS), mask=inside, other=0.0)
    tl.store(y_ptr + (channel * S + row).to(tl.int64) * S + column, value, mask=inside)


_COLUMNS, _ROWS = Kernel(_columns), Kernel(_rows)


def frame_pixels(frame: torch.Tensor, size: int, norm: Normalisation) -> torch.Tensor:
    """Bytes [H, W, 3], without gaps -> float32 [3, S, S]."""
    (height, width), device = frame.shape[:2], frame.device
    columns, rows = (taps(length, size, device) for length in (width, height))
    wide = torch.empty((height, size, 3), dtype=torch.uint8, device=device)
    out = torch.empty((3, size, size), device=device)
    across = triton.cdiv(size * 3, _BLOCK)
    _COLUMNS(
        (across, height), frame, columns.first, columns.weights, wide, width, size,
        columns.weights.shape[1], BITS=BITS, BLOCK=_BLOCK,
    )  # fmt: skip
    _ROWS(
        (across, size), wide, rows.first, rows.weights, byte_values(norm, device), out, height,
        size, rows.weights.shape[1], BITS=BITS, BLOCK=_BLOCK,
    )  # fmt: skip
    return out

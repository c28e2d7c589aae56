"""measure: areas and boxes of masks at the size of an image, without writing them.

A program enlarges some columns of one mask, counts, and adds what it found to the results; it reads
whether the mask is wanted, so the host need not know. logits [N, h, w] -> int32 [N, 6]: pixels
above the highest threshold and above the lowest; then left, top, right, bottom of those above the
middle threshold, inclusive.
"""

import torch
import triton
import triton.language as tl

from samgraph.engines.torch.kernels.launch import Kernel

_ROWS, _COLUMNS = 8, 128  # pixels of a step
_FAR = 1 << 30


@triton.jit
def _taps(positions, length, scale):
    """The two pixels of a smaller axis around each position, and the weight of the second."""
    at = tl.maximum((positions.to(tl.float32) + 0.5) * scale - 0.5, 0.0)
    first = tl.minimum(at.to(tl.int32), length - 1)
    return first, tl.minimum(first + 1, length - 1), at - first.to(tl.float32)


@triton.jit
def _measure(m_ptr, f_ptr, y_ptr, h, w, H, W, y_scale, x_scale, low, middle, high,
             FAR: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):  # fmt: skip
    """Some columns of one mask, some rows at a time; sums are taken once, at the end."""
    number = tl.program_id(1).to(tl.int64)
    x = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    left, right, dx = _taps(x, w, x_scale)
    mask = m_ptr + number * h * w
    core = tl.zeros((ROWS, COLUMNS), tl.int32)
    reach = tl.zeros((ROWS, COLUMNS), tl.int32)
    first = tl.full((ROWS, COLUMNS), FAR, tl.int32)
    last = tl.full((ROWS, COLUMNS), -1, tl.int32)
    rows = tl.where(tl.load(f_ptr + number) != 0, H, 0)
    for start in range(0, rows, ROWS):
        y = start + tl.arange(0, ROWS)
        shown = (y < H)[:, None] & (x < W)[None, :]
        top, bottom, dy = _taps(y, h, y_scale)
        upper, lower = mask + (top * w)[:, None], mask + (bottom * w)[:, None]
        a = tl.load(upper + left[None, :]) * (1.0 - dx)[None, :]
        a += tl.load(upper + right[None, :]) * dx[None, :]
        b = tl.load(lower + left[None, :]) * (1.0 - dx)[None, :]
        b += tl.load(lower + right[None, :]) * dx[None, :]
        value = tl.where(shown, a * (1.0 - dy)[:, None] + b * dy[:, None], float("-inf"))
        core += (value > high).to(tl.int32)
        reach += (value > low).to(tl.int32)
        first = tl.minimum(first, tl.where(value > middle, y[:, None], FAR))
        last = tl.maximum(last, tl.where(value > middle, y[:, None], -1))
    out = y_ptr + number * 6
    tl.atomic_add(out, tl.sum(core))
    tl.atomic_add(out + 1, tl.sum(reach))
    bottom_of = tl.max(last, 0)
    if tl.max(bottom_of) >= 0:
        tl.atomic_min(out + 2, tl.min(tl.where(bottom_of >= 0, x, FAR)))
        tl.atomic_min(out + 3, tl.min(first))
        tl.atomic_max(out + 4, tl.max(tl.where(bottom_of >= 0, x, -1)))
        tl.atomic_max(out + 5, tl.max(bottom_of))


_KERNEL = Kernel(_measure)


def measure(
    logits: torch.Tensor,
    size_hw: tuple[int, int],
    thresholds: tuple[float, float, float],
    wanted: torch.Tensor,
) -> torch.Tensor:
    """As `measuring.measure`: int64 [N, 6]; a box is all -1 where the mask is empty."""
    (N, h, w), (H, W) = logits.shape, size_hw
    found = torch.full((N, 6), -1, dtype=torch.int32, device=logits.device)
    found[:, :2], found[:, 2:4] = 0, _FAR
    if N:
        _KERNEL(
            (triton.cdiv(W, _COLUMNS), N),
            logits, wanted.to(torch.uint8), found, h, w, H, W, h / H, w / W,
            *map(float, thresholds), FAR=_FAR, ROWS=_ROWS, COLUMNS=_COLUMNS,
        )  # fmt: skip
    found[:, 2:] = torch.where(found[:, 4:5] < 0, -1, found[:, 2:])
    return found.long()

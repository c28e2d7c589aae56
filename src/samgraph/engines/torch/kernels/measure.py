"""measure: areas and boxes of masks at the size of an image, which is never written.

A program enlarges some pixels of one mask, counts, and adds what it found to the results.
logits [N, h, w] -> int32 [N, 6]: pixels above the highest threshold and above the lowest; then
left, top, right, bottom of those above the middle one, the last pixels included.
"""

import torch
import triton
import triton.language as tl

from samgraph.engines.torch.kernels.launch import Kernel
from samgraph.engines.torch.kernels.masks import sample

_BLOCK = 2048
_FAR = 1 << 30


@triton.jit
def _measure(m_ptr, y_ptr, h, w, H, W, y_scale, x_scale, low, middle, high, FAR: tl.constexpr,
             BLOCK: tl.constexpr):  # fmt: skip
    number = tl.program_id(1).to(tl.int64)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    shown = at < H * W
    y, x = at // W, at % W
    value = sample(m_ptr + number * h * w, y, x, h, w, y_scale, x_scale, shown)
    reach = tl.sum((shown & (value > low)).to(tl.int32))
    inside = shown & (value > middle)
    any_inside = tl.sum(inside.to(tl.int32))
    out = y_ptr + number * 6
    if reach > 0:
        tl.atomic_add(out, tl.sum((shown & (value > high)).to(tl.int32)))
        tl.atomic_add(out + 1, reach)
    if any_inside > 0:
        tl.atomic_min(out + 2, tl.min(tl.where(inside, x, FAR)))
        tl.atomic_min(out + 3, tl.min(tl.where(inside, y, FAR)))
        tl.atomic_max(out + 4, tl.max(tl.where(inside, x, -1)))
        tl.atomic_max(out + 5, tl.max(tl.where(inside, y, -1)))


_KERNEL = Kernel(_measure)


def measure(
    logits: torch.Tensor, size_hw: tuple[int, int], thresholds: tuple[float, float, float]
) -> torch.Tensor:
    """As `measuring.measure`: int64 [N, 6]; a box is all -1 where nothing is inside."""
    (N, h, w), (H, W) = logits.shape, size_hw
    start = torch.tensor([0, 0, _FAR, _FAR, -1, -1], dtype=torch.int32, device=logits.device)
    found = start.repeat(N, 1)
    if N:
        _KERNEL(
            (triton.cdiv(H * W, _BLOCK), N),
            logits, found, h, w, H, W, h / H, w / W, *map(float, thresholds), FAR=_FAR,
            BLOCK=_BLOCK,
        )  # fmt: skip
    found[:, 2:] = torch.where(found[:, 4:5] < 0, -1, found[:, 2:])
    return found.long()

"""Masks enlarged on the device: for the memory encoder, and as bits for the host.

    enlarge_mask   sigmoid(resize(mask * gain + offset)) * scale + shift
    mask_bits      resize(mask) > threshold, eight pixels in a byte, the first in the lowest bit

Both enlarge bilinearly, half-pixel centres, and read only the pixels they need.
"""

import torch
import triton
import triton.language as tl

from samgraph.engines.torch.kernels.launch import Kernel

_BLOCK = 1024
_BYTES = 256


@triton.jit
def _sample(ptr, y, x, h, w, y_scale, x_scale, shown):
    """The value of a mask [h, w] at pixels (y, x) of its enlargement."""
    at_y = tl.maximum((y.to(tl.float32) + 0.5) * y_scale - 0.5, 0.0)
    at_x = tl.maximum((x.to(tl.float32) + 0.5) * x_scale - 0.5, 0.0)
    top, left = tl.minimum(at_y.to(tl.int32), h - 1), tl.minimum(at_x.to(tl.int32), w - 1)
    down, right = tl.minimum(top + 1, h - 1), tl.minimum(left + 1, w - 1)
    dy, dx = at_y - top.to(tl.float32), at_x - left.to(tl.float32)
    a = tl.load(ptr + top * w + left, mask=shown, other=0.0).to(tl.float32)
    b = tl.load(ptr + top * w + right, mask=shown, other=0.0).to(tl.float32)
    c = tl.load(ptr + down * w + left, mask=shown, other=0.0).to(tl.float32)
    d = tl.load(ptr + down * w + right, mask=shown, other=0.0).to(tl.float32)
    upper, lower = a * (1.0 - dx) + b * dx, c * (1.0 - dx) + d * dx
    return upper * (1.0 - dy) + lower * dy


@triton.jit
def _enlarge(m_ptr, g_ptr, o_ptr, y_ptr, h, w, H, W, y_scale, x_scale, scale, shift,
             BLOCK: tl.constexpr):  # fmt: skip
    number = tl.program_id(1).to(tl.int64)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    shown = at < H * W
    x = _sample(m_ptr + number * h * w, at // W, at % W, h, w, y_scale, x_scale, shown)
    x = x * tl.load(g_ptr + number).to(tl.float32) + tl.load(o_ptr + number).to(tl.float32)
    y = tl.sigmoid(x) * scale + shift
    tl.store(y_ptr + number * H * W + at, y.to(y_ptr.dtype.element_ty), mask=shown)


@triton.jit
def _bits(m_ptr, y_ptr, h, w, H, W, row, y_scale, x_scale, threshold, BLOCK: tl.constexpr):
    """Bytes [N, H, row]; bits after the end of a row are zero."""
    number = tl.program_id(1).to(tl.int64)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    bits = tl.arange(0, 8)
    y = (at // row)[:, None] + tl.zeros((BLOCK, 8), tl.int32)
    x = (at % row * 8)[:, None] + bits[None, :]
    shown = (at < H * row)[:, None] & (x < W)
    value = _sample(m_ptr + number * h * w, y, x, h, w, y_scale, x_scale, shown)
    set_bits = tl.where(shown & (value > threshold), 1, 0) << bits[None, :]
    packed = tl.sum(set_bits, 1).to(tl.uint8)
    tl.store(y_ptr + number * H * row + at, packed, mask=at < H * row)


_ENLARGE, _BITS = Kernel(_enlarge), Kernel(_bits)


def enlarge_mask(
    mask: torch.Tensor,
    gain: torch.Tensor,
    offset: torch.Tensor,
    *,
    scale: float,
    shift: float,
    out: torch.Tensor,
) -> torch.Tensor:
    """mask [N, 1, h, w], gain and offset of N elements; fills `out` [N, 1, H, W]."""
    (N, _, h, w), (H, W) = mask.shape, out.shape[2:]
    _ENLARGE(
        (triton.cdiv(H * W, _BLOCK), N),
        mask, gain, offset, out, h, w, H, W, h / H, w / W, scale, shift, BLOCK=_BLOCK,
    )  # fmt: skip
    return out


def mask_bits(logits: torch.Tensor, size_hw: tuple[int, int], threshold: float) -> torch.Tensor:
    """logits [N, h, w] -> bytes [N, H, ceil(W/8)], for `numpy.unpackbits(bitorder="little")`."""
    (N, h, w), (H, W) = logits.shape, size_hw
    row = triton.cdiv(W, 8)
    packed = torch.empty((N, H, row), dtype=torch.uint8, device=logits.device)
    _BITS(
        (triton.cdiv(H * row, _BYTES), N),
        logits, packed, h, w, H, W, row, h / H, w / W, float(threshold), BLOCK=_BYTES,
    )  # fmt: skip
    return packed

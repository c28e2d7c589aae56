"""conv_norm: a convolution, a norm over its channels at each pixel, and an activation.

A program takes some pixels and all their channels, so that the norm needs no second pass. A dense
convolution of few channels gathers the patch under each pixel and multiplies it as a matrix; a
depthwise convolution adds up taps one after another. Input and output are channels-last.

x [N, H, W, c], weight [C, k*k*c] or [k*k, C] -> [N, H', W', C].
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from samgraph.engines.torch.kernels.activations import activate, normalise
from samgraph.engines.torch.kernels.launch import Kernel, block_width
from samgraph.engines.torch.ops.conv_norm import ConvNormAttributes

_NARROWEST = 16


@triton.jit
def _norm_and_store(y, y_ptr, rows, M, b_ptr, scale_ptr, shift_ptr, eps, C: tl.constexpr,
                    BC: tl.constexpr, ACTIVATION: tl.constexpr):  # fmt: skip
    cs = tl.arange(0, BC)
    here = (cs < C)[None, :]
    y += tl.load(b_ptr + cs, mask=cs < C, other=0.0).to(tl.float32)[None, :]
    y = normalise(y, here, C, eps)
    scale = tl.load(scale_ptr + cs, mask=cs < C, other=0.0).to(tl.float32)
    y = y * scale[None, :]
    y += tl.load(shift_ptr + cs, mask=cs < C, other=0.0).to(tl.float32)[None, :]
    y = activate(y, ACTIVATION)
    y_at = y_ptr + rows.to(tl.int64)[:, None] * C + cs[None, :]
    tl.store(y_at, y.to(y_ptr.dtype.element_ty), mask=(rows < M)[:, None] & here)


@triton.jit
def _dense(x_ptr, w_ptr, b_ptr, scale_ptr, shift_ptr, y_ptr, M, H, W, high, wide, eps,
           CHANNELS: tl.constexpr, KERNEL: tl.constexpr, STRIDE: tl.constexpr,
           PADDING: tl.constexpr, C: tl.constexpr, BC: tl.constexpr, BM: tl.constexpr,
           BK: tl.constexpr, ACTIVATION: tl.constexpr, PRECISION: tl.constexpr):  # fmt: skip
    rows, cs = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, BC)
    image, pixel = rows // (high * wide), rows % (high * wide)
    top, left = pixel // wide * STRIDE - PADDING, pixel % wide * STRIDE - PADDING
    depth: tl.constexpr = KERNEL * KERNEL * CHANNELS
    y = tl.zeros((BM, BC), tl.float32)
    for start in range(0, depth, BK):
        ks = start + tl.arange(0, BK)
        tap, channel = ks // CHANNELS, ks % CHANNELS
        at_y, at_x = (
            top[:, None] + (tap // KERNEL)[None, :],
            left[:, None] + (tap % KERNEL)[None, :],
        )
        inside = (at_y >= 0) & (at_y < H) & (at_x >= 0) & (at_x < W)
        inside = inside & (rows < M)[:, None] & (ks < depth)[None, :]
        at = ((image[:, None] * H + at_y).to(tl.int64) * W + at_x) * CHANNELS + channel[None, :]
        x = tl.load(x_ptr + at, mask=inside, other=0.0)
        w = tl.load(w_ptr + cs[None, :] * depth + ks[:, None],
                    mask=(cs < C)[None, :] & (ks < depth)[:, None], other=0.0)  # fmt: skip
        y = tl.dot(x.to(w.dtype), w, y, input_precision=PRECISION)
    _norm_and_store(y, y_ptr, rows, M, b_ptr, scale_ptr, shift_ptr, eps, C, BC, ACTIVATION)


@triton.jit
def _depthwise(x_ptr, w_ptr, b_ptr, scale_ptr, shift_ptr, y_ptr, M, H, W, eps,
               KERNEL: tl.constexpr, PADDING: tl.constexpr, C: tl.constexpr, BC: tl.constexpr,
               BM: tl.constexpr, ACTIVATION: tl.constexpr):  # fmt: skip
    rows, cs = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, BC)
    image, pixel = rows // (H * W), rows % (H * W)
    y = tl.zeros((BM, BC), tl.float32)
    for down in range(KERNEL):
        at_y = pixel // W + down - PADDING
        row = (image * H + at_y).to(tl.int64) * W
        for right in tl.static_range(KERNEL):
            at_x = pixel % W + right - PADDING
            inside = (at_y >= 0) & (at_y < H) & (at_x >= 0) & (at_x < W) & (rows < M)
            x = tl.load(x_ptr + (row + at_x)[:, None] * C + cs[None, :],
                        mask=inside[:, None] & (cs < C)[None, :], other=0.0)  # fmt: skip
            w = tl.load(w_ptr + (down * KERNEL + right) * C + cs, mask=cs < C, other=0.0)
            y += x.to(tl.float32) * w.to(tl.float32)[None, :]
    _norm_and_store(y, y_ptr, rows, M, b_ptr, scale_ptr, shift_ptr, eps, C, BC, ACTIVATION)


_DENSE, _DEPTHWISE = Kernel(_dense), Kernel(_depthwise)


@dataclass(frozen=True, slots=True)
class Blocks:
    """Pixels of a program, depth of a step (not of depthwise convolutions), warps."""

    rows: int
    depth: int
    warps: int


def conv_norm(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    scale: torch.Tensor,
    shift: torch.Tensor,
    *,
    attributes: ConvNormAttributes,
    blocks: Blocks,
    precision: str = "tf32",
    out: torch.Tensor,
) -> torch.Tensor:
    """Fill `out` [N, H', W', C]; all tensors are contiguous."""
    N, H, W, channels = x.shape
    _, high, wide, C = out.shape
    at = attributes
    M, deepest = N * high * wide, at.kernel**2 * channels
    _DENSE(
        (triton.cdiv(M, blocks.rows),),
        x, weight, bias, scale, shift, out, M, H, W, high, wide, at.eps, CHANNELS=channels,
        KERNEL=at.kernel, STRIDE=at.stride, PADDING=at.padding, C=C,
        BC=block_width(C), BM=blocks.rows,
        BK=max(_NARROWEST, min(blocks.depth, triton.next_power_of_2(deepest))),
        ACTIVATION=at.activation, PRECISION=precision, warps=blocks.warps, stages=2,
    )  # fmt: skip
    return out


def depthwise_norm(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    scale: torch.Tensor,
    shift: torch.Tensor,
    *,
    attributes: ConvNormAttributes,
    blocks: Blocks,
    out: torch.Tensor,
) -> torch.Tensor:
    """Fill `out` [N, H, W, C], as large as x: a depthwise convolution at stride 1, and the norm."""
    N, H, W, C = x.shape
    at, M = attributes, N * H * W
    _DEPTHWISE(
        (triton.cdiv(M, blocks.rows),),
        x, weight, bias, scale, shift, out, M, H, W, at.eps, KERNEL=at.kernel,
        PADDING=at.padding, C=C,
        BC=triton.next_power_of_2(C), BM=blocks.rows, ACTIVATION=at.activation, warps=blocks.warps,
        stages=3,
    )  # fmt: skip
    return out

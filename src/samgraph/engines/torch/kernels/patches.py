"""patches: the strided convolution at the start of the encoder, with positions added.

    y = convolution(image, weight) + bias + positions

A program takes a run of output pixels and gathers the patch under each: no matrix of patches is
ever written. image [B, c, H, W] in any float, weight [N, c*k*8]: each row of a k x k kernel has
zeros in front, up to eight, so that a kernel of 7 at stride 4 reads whole groups; positions
[H', W', N] -> [B, H', W', N].
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from samgraph.engines.torch.kernels.launch import Kernel

ROW = 8  # a row of the kernel, padded


@triton.jit
def _patches(x_ptr, w_ptr, b_ptr, p_ptr, y_ptr, M, N, H, W, high, wide, channels,
             KERNEL: tl.constexpr, STRIDE: tl.constexpr, PADDING: tl.constexpr,
             DEPTH: tl.constexpr, PRECISION: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
             BK: tl.constexpr):  # fmt: skip
    rows, columns = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, BN)
    columns += tl.program_id(1) * BN
    image, pixel = rows // (high * wide), rows % (high * wide)
    top, left = pixel // wide * STRIDE - PADDING, pixel % wide * STRIDE - (8 - KERNEL + PADDING)
    y = tl.zeros((BM, BN), tl.float32)
    for start in range(0, DEPTH, BK):
        ks = start + tl.arange(0, BK)
        channel, down, right = ks // (8 * KERNEL), ks // 8 % KERNEL, ks % 8
        at_y, at_x = top[:, None] + down[None, :], left[:, None] + right[None, :]
        inside = (at_y >= 0) & (at_y < H) & (at_x >= 0) & (at_x < W) & (rows < M)[:, None]
        inside = inside & (channel < channels)[None, :]
        plane = (image[:, None] * channels + channel[None, :]).to(tl.int64)
        x = tl.load(x_ptr + (plane * H + at_y) * W + at_x, mask=inside, other=0.0)
        w = tl.load(w_ptr + columns[None, :] * (channels * KERNEL * 8) + ks[:, None],
                    mask=(columns < N)[None, :] & (channel < channels)[:, None],
                    other=0.0)  # fmt: skip
        y = tl.dot(x.to(w.dtype), w, y, input_precision=PRECISION)
    y += tl.load(b_ptr + columns, mask=columns < N, other=0.0).to(tl.float32)[None, :]
    shown = (rows < M)[:, None] & (columns < N)[None, :]
    y += tl.load(p_ptr + pixel[:, None] * N + columns[None, :], mask=shown, other=0.0)
    y_at = y_ptr + rows.to(tl.int64)[:, None] * N + columns[None, :]
    tl.store(y_at, y.to(y_ptr.dtype.element_ty), mask=shown)


_KERNEL = Kernel(_patches)


@dataclass(frozen=True, slots=True)
class Blocks:
    """Rows, columns and depth of a tile, and warps."""

    rows: int
    columns: int
    depth: int
    warps: int


def patches(
    image: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    positions: torch.Tensor,
    *,
    kernel: int,
    stride: int,
    padding: int,
    blocks: Blocks,
    precision: str = "tf32",
    out: torch.Tensor,
) -> torch.Tensor:
    """Fill `out` [B, H', W', N]."""
    B, channels, H, W = image.shape
    _, high, wide, N = out.shape
    M = B * high * wide
    _KERNEL(
        (triton.cdiv(M, blocks.rows), triton.cdiv(N, blocks.columns)),
        image, weight, bias, positions, out, M, N, H, W, high, wide, channels,
        KERNEL=kernel, STRIDE=stride, PADDING=padding,
        DEPTH=triton.cdiv(channels * kernel * ROW, blocks.depth) * blocks.depth,
        PRECISION=precision, BM=blocks.rows, BN=blocks.columns, BK=blocks.depth,
        warps=blocks.warps, stages=2,
    )  # fmt: skip
    return out

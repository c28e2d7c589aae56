"""Block sizes of the kernels: measured on an H200, and a rule for GPUs with less shared memory."""

import torch

from samgraph.engines.torch.kernels import (
    attention,
    convolution,
    few_rows,
    image_to_tokens,
    linear,
    mlp,
    patches,
    row_linear,
    upscaling,
    windows,
)

NARROWEST = 16  # what the matrix units take
FEW_QUERIES = 128  # whose float32 scores are best materialised
_NARROW_ROWS = 128  # that are held whole
_MANY_ROWS = 16384
DEPTHWISE = convolution.Blocks(4, 0, 4)
PATCHES = patches.Blocks(64, 128, 64, 4)


def are_few(M: int, K: int) -> bool:
    """Whether a product has so few rows and such depth that its depth is split."""
    return M <= 256 and K >= 512


def few_blocks(K: int) -> few_rows.Blocks:
    """For few rows and a deep product."""
    return few_rows.Blocks(max(1, K // 256), 32, 128)


def linear_blocks(
    M: int, N: int, K: int, weight: torch.dtype, *, pools: bool = False
) -> linear.Blocks:
    """For x [M, K] times weight [N, K]."""
    depth = 64 if K % 64 == 0 else 32
    if weight == torch.float32:
        return linear.Blocks(16, 64, 64, 4, 3) if M <= 32 else linear.Blocks(64, 64, 32, 4, 3)
    if N <= 32:
        return linear.Blocks(128, 32, depth, 4, 4)
    if N <= 64:
        return linear.Blocks(64, 64, depth, 4, 4)
    if pools:
        return linear.Blocks(128, 128, depth, 8, 3)
    if K >= 1024 and N % 128 == 0:
        return linear.Blocks(64, 128, depth, 4, 4)
    if M >= _MANY_ROWS and N <= 128:
        return linear.Blocks(128, 32, depth, 4, 4)
    return linear.Blocks(128, 64, depth, 4, 4)


def row_blocks(
    M: int, N: int, K: int, weight: torch.dtype, *, norms: bool
) -> row_linear.Blocks | None:
    """For rows that are held whole and normalised; None where that is not best."""
    if weight == torch.float32 or not norms or M < _MANY_ROWS or K > _NARROW_ROWS:
        return None
    return row_linear.Blocks(128, 32 if N % 64 else 64, 1, 8, 4 if N % 64 else 3)


def rotated_blocks(M: int, N: int, K: int, weight: torch.dtype) -> row_linear.Blocks | None:
    """For rows that are also rotated; None where they are rotated afterwards."""
    if weight == torch.float32:
        return row_linear.Blocks(32, 0, 1, 4, 1) if K <= _NARROW_ROWS else None
    if K <= _NARROW_ROWS:
        return row_linear.Blocks(128, 0, 1, 8, 2)
    return row_linear.Blocks(64, 0, 1, 4, 2) if N <= 256 and M <= _MANY_ROWS else None


def mlp_blocks(M: int, C: int, H: int, weight: torch.dtype) -> mlp.Blocks | None:
    """For a feed-forward block of M rows; None where two products are better."""
    if weight == torch.float32 or C > _NARROW_ROWS or M < _MANY_ROWS or H % 64:
        return None
    return mlp.Blocks(64, 64, 4, 3)


def attention_blocks(
    heads: int, T: int, S: int, D: int, E: int, dtype: torch.dtype
) -> attention.Blocks:
    """For T queries and S keys of width D, values of width E; `heads` of all batches."""
    if dtype == torch.float32:
        keys, splits = 16 if S <= 32 else 32, max(1, min(16, S // 64))
        return attention.Blocks(16 if T <= 128 else 64, keys, 4, 2, splits)
    return attention.Blocks(128, 64, 8, 3 if E < 128 else 2, max(1, 4 // heads))


def cudnn_splits(heads: int, S: int) -> int:
    """Into how many ranges S keys are split for cuDNN's attention; 0 where ours is the faster."""
    if heads >= 4:
        return 1
    return 2 if heads == 2 and S % 2 == 0 else 0


def window_blocks(
    window: tuple[int, int], pool: int, width: int, dtype: torch.dtype
) -> windows.Blocks:
    """For windows of heads of `width` channels."""
    tokens = window[0] * window[1]
    if tokens // pool**2 <= 16:
        return windows.Blocks(16, 64, 1 if tokens <= 16 else 4, 2)
    if tokens > 128 and pool == 1:
        return windows.Blocks(128, 64, 4, 2)
    return windows.Blocks(64, 64, 4, 1 if tokens > 128 else 2)


def cell_blocks(images: int) -> image_to_tokens.Blocks:
    """For the cells of `images` images that attend to tokens."""
    return image_to_tokens.Blocks(128, 8, 1) if images >= 8 else image_to_tokens.Blocks(32, 4, 2)


def upscaling_blocks(images: int) -> upscaling.Blocks:
    """For the cells of `images` images that become masks."""
    return upscaling.Blocks(16, 4)


def conv_blocks(M: int, C: int) -> convolution.Blocks:
    """For M pixels of C channels."""
    if C >= 128:
        return convolution.Blocks(32, 64, 8) if M <= 8192 else convolution.Blocks(64, 64, 4)
    return convolution.Blocks(64 if C >= 64 else 128, 64, 4)

"""Block sizes of the kernels: measured on an H200, and a rule for GPUs with less shared memory."""

import torch

from samgraph.engines.torch.kernels import (
    attention,
    convolution,
    few_rows,
    image_to_tokens,
    linear,
    mlp,
    paint,
    patches,
    row_linear,
    windows,
)

NARROWEST = 16  # what the matrix units take
DEPTHWISE = convolution.Blocks(8, 0, 4)
PATCHES = patches.Blocks(64, 128, 64, 4)


def are_few(M: int, K: int) -> bool:
    """Whether a product is so low and deep that its depth is split."""
    return M <= 256 and K >= 512


def few_blocks(K: int) -> few_rows.Blocks:
    """For few rows and a deep product."""
    return few_rows.Blocks(max(1, K // 256), 32, 128)


def linear_blocks(M: int, N: int, K: int, weight: torch.dtype) -> linear.Blocks:
    """For x [M, K] times weight [N, K]."""
    if weight == torch.float32:
        return linear.Blocks(64 if M > 16 else 16, 32, 32, 4, 3)
    if N <= 64:
        return linear.Blocks(64, 64, 64 if K % 64 == 0 else 32, 4, 4)
    return linear.Blocks(128, 64, 64 if K % 64 == 0 else 32, 4, 3)


def row_blocks(
    M: int, N: int, K: int, weight: torch.dtype, *, norms: bool
) -> row_linear.Blocks | None:
    """The same for rows that are held whole; None where tiles are better."""
    if weight == torch.float32 or (not norms and M < 16384):
        return None
    return row_linear.Blocks(128, 64, 1 if M >= 16384 else 4, 8, 3)


def rotated_blocks(M: int, N: int, K: int, weight: torch.dtype) -> row_linear.Blocks:
    """The same where rows are rotated."""
    if weight == torch.float32:
        return row_linear.Blocks(32, 0, 1, 4, 1)
    return row_linear.Blocks(64, 0, 1 if M >= 16384 else 3, 4, 2)


def mlp_blocks(M: int, C: int, H: int, weight: torch.dtype) -> mlp.Blocks | None:
    """For a feed-forward block of M rows; None where two products are better."""
    if weight == torch.float32 or C > 256 or M < 8192 or H % 64:
        return None
    return mlp.Blocks(128, 64, 8, 2)


def attention_blocks(
    heads: int, T: int, S: int, D: int, E: int, dtype: torch.dtype
) -> attention.Blocks:
    """For T queries and S keys of width D, values of width E, in so many heads of all batches."""
    if dtype == torch.float32:
        keys, splits = 16 if S <= 32 else 32, max(1, min(32, S // 64))
        return attention.Blocks(16 if T <= 128 else 64, keys, 4, 2, splits)
    return attention.Blocks(128, 64, 8, 3 if E < 128 else 2, max(1, min(4, 8 // heads)))


def cudnn_splits(heads: int, q: torch.Tensor, k: torch.Tensor, widths: tuple[int, int]) -> int:
    """Into how many ranges of keys cuDNN's attention is split; 0 where it is not used."""
    return 0


def window_blocks(
    window: tuple[int, int], pool: int, width: int, dtype: torch.dtype
) -> windows.Blocks:
    """For windows of heads of `width` channels."""
    tokens = window[0] * window[1] // pool**2
    if tokens <= 16:
        return windows.Blocks(16, 64, 1 if pool == 1 else 4, 2)
    return windows.Blocks(64, 64, 4, 2)


def cell_blocks(images: int) -> image_to_tokens.Blocks:
    """For the cells of so many images that take from tokens."""
    return image_to_tokens.Blocks(32, 4, 2)


def paint_blocks(images: int) -> paint.Blocks:
    """For the cells of so many images that become masks."""
    return paint.Blocks(16, 4)


def conv_blocks(M: int, C: int) -> convolution.Blocks:
    """For M pixels of C channels."""
    return convolution.Blocks(64, 64, 4)

"""Block sizes of the kernels: measured where they were measured, else by rule."""

import torch

from samgraph.engines.torch.kernels.attention import Blocks as AttentionBlocks
from samgraph.engines.torch.kernels.linear import Blocks as LinearBlocks


def linear_blocks(
    M: int, N: int, K: int, x: torch.dtype, weight: torch.dtype, *, pools: bool
) -> LinearBlocks:
    """For x [M, K] times weight [N, K]."""
    if weight == torch.float32:
        return LinearBlocks(64 if M > 16 else 16, 32, 32, 4, 3)
    return LinearBlocks(128, 128, 64 if K % 64 == 0 else 32, 8, 3)


def attention_blocks(
    heads: int, T: int, S: int, D: int, E: int, dtype: torch.dtype
) -> AttentionBlocks | None:
    """For T queries and S keys of width D, values of width E, in so many heads of all batches."""
    if dtype == torch.float32:
        few = T <= 32
        return AttentionBlocks(16 if few else 64, 16 if S <= 32 else 32, 4, 2, max(1, min(32, S // 128)))
    return AttentionBlocks(128, 64, 8, 2, 4)


def window_blocks(
    window: tuple[int, int], pool: int, width: int, dtype: torch.dtype
) -> dict[str, int] | None:
    """For windows of heads of `width` channels."""
    return {"queries": 64, "keys": 64, "warps": 4, "stages": 2}

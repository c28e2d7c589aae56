"""Ops of the torch engine alone: what its passes fuse, and its kernels compute in one go.

Each file has, like those in `samgraph/ops`, the meaning in words, the type rule and a slow numpy
reference. `fused.py` has them in torch's functions, `kernels/` as kernels.
"""

from samgraph.engines.torch.ops import (
    bank,
    conv_norm,
    enlarge_mask,
    fused_linear,
    fused_mlp,
    grouped_linear,
    image_to_tokens,
    offset_norm,
    patch_embedding,
    upscale_masks,
    window_attention,
)

__all__ = [
    "bank",
    "conv_norm",
    "enlarge_mask",
    "fused_linear",
    "fused_mlp",
    "grouped_linear",
    "image_to_tokens",
    "offset_norm",
    "patch_embedding",
    "upscale_masks",
    "window_attention",
]

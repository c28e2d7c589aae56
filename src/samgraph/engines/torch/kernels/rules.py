"""The ops that have kernels, where Triton is installed."""

import importlib.util
from collections.abc import Mapping
from functools import cache

from samgraph.engines.torch.products import Rule


def has_kernels() -> bool:
    """Whether Triton is installed."""
    return importlib.util.find_spec("triton") is not None


@cache
def kernel_rules() -> Mapping[str, Rule] | None:
    """The rule of every op that has a kernel; None where Triton is missing."""
    if not has_kernels():
        return None
    from samgraph.engines.torch.kernels import attention_rules, decoder_rules, linear_rules

    return {
        "attention": attention_rules.attention,
        "bank_keys": decoder_rules.bank_keys,
        "bank_values": decoder_rules.bank_values,
        "conv_norm": decoder_rules.conv_norm,
        "enlarge_mask": decoder_rules.enlarge_mask,
        "fused_linear": linear_rules.fused_linear,
        "fused_mlp": linear_rules.fused_mlp,
        "gather": decoder_rules.gather,
        "grouped_linear": decoder_rules.grouped_linear,
        "image_to_tokens": decoder_rules.image_to_tokens,
        "layer_norm": decoder_rules.layer_norm,
        "offset_norm": decoder_rules.offset_norm,
        "upscale_masks": decoder_rules.upscale_masks,
        "patch_embedding": decoder_rules.patch_embedding,
        "window_attention": attention_rules.window_attention,
    }

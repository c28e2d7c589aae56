"""The passes that put native attention into a graph, for engines that can run it."""

from samgraph.engines.native.passes.absorb_key_rotation import absorb_key_rotation
from samgraph.engines.native.passes.attention_to_flash import attention_to_flash
from samgraph.passes.pipeline import Step

# fp32 alone: in bf16 an engine's own products are as fast
NATIVE_PASSES = (
    Step(absorb_key_rotation, precisions=("fp32",)),
    Step(attention_to_flash, precisions=("fp32",)),
)

__all__ = ["NATIVE_PASSES", "absorb_key_rotation", "attention_to_flash"]

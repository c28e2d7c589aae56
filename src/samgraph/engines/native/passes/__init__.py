"""The passes that put native attention into a graph, for engines that can run it."""

from samgraph.engines.native.passes.absorb_key_rotation import absorb_key_rotation
from samgraph.engines.native.passes.attention_to_flash import attention_to_flash
from samgraph.passes.pipeline import Step

ABSORB_KEY_ROTATION = Step(absorb_key_rotation)
ATTENTION_TO_FLASH = Step(attention_to_flash, optional=True)
NATIVE_PASSES = (ABSORB_KEY_ROTATION, ATTENTION_TO_FLASH)

__all__ = [
    "ABSORB_KEY_ROTATION",
    "ATTENTION_TO_FLASH",
    "NATIVE_PASSES",
    "absorb_key_rotation",
    "attention_to_flash",
]

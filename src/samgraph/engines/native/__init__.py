"""Attention in C for the CPU: an engine's passes put it into graphs, `Kernels` runs it.

`attention.c` is compiled when the package is built (`hatch_build.py`). Without it everything
works, with the engine's own attention.
"""

from samgraph.engines.native.library import Kernels, find_kernels
from samgraph.engines.native.ops import NATIVE_OPS, is_rounded
from samgraph.engines.native.passes import ABSORB_KEY_ROTATION, ATTENTION_TO_FLASH, NATIVE_PASSES

__all__ = [
    "ABSORB_KEY_ROTATION",
    "ATTENTION_TO_FLASH",
    "NATIVE_OPS",
    "NATIVE_PASSES",
    "Kernels",
    "find_kernels",
    "is_rounded",
]

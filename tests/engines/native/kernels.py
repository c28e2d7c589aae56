"""The compiled kernels, for each instruction set that this machine has or emulates."""

import pytest

from samgraph.engines.native import Kernels, find_kernels
from samgraph.engines.native.library import NAME, load_kernels
from tests.engines.native import emulation
from tests.engines.native.compilers import SOURCES

FOUND = find_kernels()
needs_kernels = pytest.mark.skipif(FOUND is None, reason="the native kernels were not built")
EMULATED = {"neon in QEMU": emulation.neon_in_qemu}


def every_set() -> dict[str, Kernels]:
    """The kernels compiled for each instruction set, up to the widest that works, by name."""
    if FOUND is None:
        return {}
    return {kernels.instructions: kernels for kernels in load_kernels(SOURCES / NAME)}


SETS = every_set()
KERNELS = pytest.mark.parametrize("kernels", [*SETS, *EMULATED], indirect=True)


def kernels_called(name: str) -> Kernels:
    """One set by name; skips where it cannot be emulated."""
    return SETS[name] if name in SETS else EMULATED[name]()

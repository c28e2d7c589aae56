"""The compiled kernels, for each instruction set that this machine has or emulates."""

from pathlib import Path

import pytest

from samgraph.engines.native import Kernels, find_kernels
from samgraph.engines.native import library as native_library
from samgraph.engines.native.library import NAME, load_kernels
from tests.engines.native import emulation

FOUND = find_kernels()
needs_kernels = pytest.mark.skipif(FOUND is None, reason="the native kernels were not built")
ROUNDING = ("avx512_bf16", "amx_bf16")
EMULATED = {"amx_bf16 in C": emulation.tiles_in_c, "neon in QEMU": emulation.neon_in_qemu}
BUILT = Path(native_library.__file__).with_name(NAME)


def every_set() -> dict[str, Kernels]:
    """The kernels compiled for each instruction set, up to the widest that works, by name."""
    if FOUND is None:
        return {}
    return {kernels.instructions: kernels for kernels in load_kernels(BUILT)}


SETS = every_set()
KERNELS = pytest.mark.parametrize("kernels", [*SETS, *EMULATED], indirect=True)


def kernels_called(name: str) -> Kernels:
    """One set by name; skips where it cannot be emulated."""
    return SETS[name] if name in SETS else EMULATED[name]()

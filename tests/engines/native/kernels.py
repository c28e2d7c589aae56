"""The compiled kernels, for each instruction set that this machine has."""

import pytest

from samgraph.engines.native import Kernels, find_kernels
from samgraph.engines.native.library import _SETS

FOUND = find_kernels()
needs_kernels = pytest.mark.skipif(FOUND is None, reason="the native kernels were not built")


def every_set() -> list[Kernels]:
    """The kernels compiled for each instruction set, up to the widest that works."""
    if FOUND is None:
        return []
    widest = _SETS.index(FOUND.instructions)
    return [Kernels(FOUND._library, name, i) for i, name in enumerate(_SETS[: widest + 1])]

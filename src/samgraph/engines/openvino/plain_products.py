"""A detour for linear maps without an activation, around a slow choice of OpenVINO.

It gives a product that nothing follows but a bias to MLAS, which on processors with AVX-512 is 5
to 40 % slower than the kernel it takes where an activation follows (2026.4; 65536 x 96 times 96 x
288: 32 ms against 19). So an activation follows that changes nothing, whatever the number:

    y = x if x > 0 else 1 * x
"""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from openvino import opset15


def unchanged(y: Any) -> Any:
    """The same numbers; through an activation where that makes the product before it faster."""
    return opset15.prelu(y, opset15.constant(np.ones(1, np.float32))) if _has_avx512() else y


@cache
def _has_avx512() -> bool:
    """Whether the processor has it; no where the system does not tell."""
    try:
        return " avx512f " in Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return False

"""Kernels are compiled for a GPU without a GPU, and without a compiler on the path."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.engines.torch.kernels.running import torch  # noqa: F401  # skips where torch is missing

pytestmark = pytest.mark.parity
ROOT = Path(__file__).resolve().parents[4]
CODE = """
from samgraph.engines.torch.kernels import launch
from samgraph.engines.torch.kernels.norm import _KERNEL
kinds = [("*bf16", True)] * 5 + [("i32", True)] * 3 + [("fp32", False)]
constants = dict(SCALED=True, OFFSET=True, C=96, BC=128, BM=32, ACTIVATION="gelu")
compiled = _KERNEL.compile(kinds, constants, 4, 2, {capability})
assert compiled.asm["cubin"][:4] == b"\\x7fELF"
assert launch.hidden_pointers(compiled) in (0, 1, 2)
"""


@pytest.mark.parametrize("capability", [80, 90])
def test_a_kernel_is_compiled_for_another_machine(capability: int, tmp_path: Path) -> None:
    path = {"PYTHONPATH": str(ROOT / "src"), "PATH": "", "TRITON_CACHE_DIR": str(tmp_path)}
    environment = {k: v for k, v in os.environ.items() if k not in ("TRITON_INTERPRET", "CC")}
    subprocess.run(
        [sys.executable, "-c", CODE.format(capability=capability)],
        check=True,
        env={**environment, **path},
    )

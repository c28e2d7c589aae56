"""The path for arm64: what it is compiled to, and that it agrees with plain C in an emulator.

Its numbers are tested in QEMU with those of the other sets, in `test_kernels.py`.
"""

import re
import subprocess
from pathlib import Path

import pytest

from tests.engines.native.compilers import HERE, SOURCES, compile_c, qemu_for, zig_for


@pytest.mark.parametrize("target", ["aarch64-linux-gnu.2.17", "aarch64-macos"])
def test_products_are_fused_and_as_wide_as_a_register(target: str, tmp_path: Path) -> None:
    assembly = tmp_path / "attention.s"
    flags = ("-O3", "-fPIC", "-S", str(SOURCES / "attention.c"), "-o", str(assembly))
    compile_c(zig_for(target), *flags)

    text = assembly.read_text(encoding="utf-8")
    functions = re.split(r"^_?([a-z_]+_(?:neon|plain)):.*\n", text, flags=re.MULTILINE)
    for name in ("scores_neon", "absorb_neon", "recall_neon"):
        body = functions[functions.index(name) + 1]
        assert len(re.findall(r"fmla(?:\.4s\s+v\d+|\s+v\d+\.4s)", body)) >= 24, name  # 8 rows of 3


def test_it_agrees_with_plain_c_in_qemu(tmp_path: Path) -> None:
    program, qemu = tmp_path / "driver", qemu_for("aarch64")
    flags = (
        "-O2",
        "-static",
        "-DBEST=SG_NEON",
        str(HERE / "sanitized.c"),
        "-o",
        str(program),
        "-lm",
    )
    compile_c(zig_for("aarch64-linux-musl"), *flags)

    found = subprocess.run([qemu, str(program)], capture_output=True, timeout=200, check=False)

    assert (found.returncode, found.stdout) == (0, b"ok\n")

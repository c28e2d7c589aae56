"""C compilers for tests of `attention.c`; what is missing skips a test."""

import importlib.util
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
SOURCES = HERE.parents[2] / "src" / "samgraph" / "engines" / "native"
TILES = ('-DSG_TILES="tiles.h"', f"-I{HERE}")  # the instructions of AMX in C
FLAGS = ("-std=gnu11", "-pthread", f"-I{SOURCES}")


def own_compiler() -> list[str]:
    """The machine's C compiler."""
    for name in ("cc", "gcc", "clang"):
        found = shutil.which(name)
        if found:
            return [found]
    pytest.skip("there is no C compiler here")


def zig_for(target: str) -> list[str]:
    """A compiler for another system."""
    if not importlib.util.find_spec("ziglang"):
        pytest.skip("ziglang is not installed")
    return [sys.executable, "-m", "ziglang", "cc", "-target", target]


def qemu_for(machine: str) -> str:
    """The emulator that runs a program of another processor."""
    if platform.system() == "Linux":
        for name in (f"qemu-{machine}-static", f"qemu-{machine}"):
            found = shutil.which(name)
            if found:
                return found
    pytest.skip(f"qemu-{machine}-static is not installed")


def compile_c(command: list[str], *options: str, timeout: float = 280) -> None:
    """Run a compiler, which must succeed."""
    words = [*command, *FLAGS, *options]
    made = subprocess.run(words, capture_output=True, text=True, timeout=timeout, check=False)
    assert made.returncode == 0, made.stderr[-2000:]

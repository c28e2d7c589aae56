"""Compiles the native attention kernel when the package is built or installed.

With the machine's C compiler where there is one, else with `ziglang` from the package index. If
neither works, installing goes on and one line says what is missing: samgraph runs without it.
SAMGRAPH_TARGET names another system for zig to compile for, such as aarch64-macos.
"""

import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FOLDER = Path("src") / "samgraph" / "engines" / "native"
FLAGS = ("-O3", "-std=gnu11", "-fPIC", "-shared", "-pthread", "-fvisibility=hidden")


class CustomBuildHook(BuildHookInterface):
    """Puts `_attention.lib` next to its source."""

    def dependencies(self) -> list[str]:
        """A C compiler from the package index where the machine has none."""
        return [] if _compiler() else ["ziglang"]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and name the wheel after the system it is for."""
        if self.target_name != "wheel":
            return
        root = Path(self.root) / FOLDER
        library = root / "_attention.lib"
        problem = compile_kernel(root / "attention.c", library)
        if problem:
            self.app.display_warning(f"samgraph is installed without its native kernel: {problem}")
            return
        build_data["artifacts"].append(str(FOLDER / library.name))
        if version != "editable":
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-{_platform()}"


def compile_kernel(source: Path, library: Path) -> str | None:
    """Compile `source` to `library`; what went wrong, or None."""
    command = _compiler()
    if command is None and importlib.util.find_spec("ziglang"):
        command = [sys.executable, "-m", "ziglang", "cc"]
    if command is None:
        return "no C compiler was found"
    target = os.environ.get("SAMGRAPH_TARGET")
    fresh = library.with_suffix(".new")
    flags = [*FLAGS, *(["-target", target] if target else [])]
    try:
        words = [*command, *flags, str(source), "-o", str(fresh)]
        done = subprocess.run(words, capture_output=True, text=True)  # noqa: S603
        if done.returncode:  # an old assembler does not know AMX
            words.append("-DSG_NO_AMX")
            done = subprocess.run(words, capture_output=True, text=True)  # noqa: S603
        if done.returncode:
            return (done.stderr.strip().splitlines() or ["the compiler failed"])[0]
        fresh.replace(library)
    except OSError as error:
        return str(error)
    return None


def _compiler() -> list[str] | None:
    """The machine's own compiler; zig where another system is the target."""
    if os.environ.get("SAMGRAPH_TARGET") or os.name == "nt":
        return None
    found = os.environ.get("CC") or shutil.which("cc")
    return found.split() if found else None


def _platform() -> str:
    return sysconfig.get_platform().replace("-", "_").replace(".", "_")

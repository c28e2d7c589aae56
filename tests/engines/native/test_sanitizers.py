"""attention.c under the sanitizers of a C compiler; planted faults show that they look."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.engines.native.compilers import HERE, TILES, compile_c, own_compiler
from tests.engines.native.emulation import needs_avx512_bf16

MEMORY, THREADS = "address,undefined", "thread"


@pytest.fixture(scope="module")
def compiler() -> list[str]:
    """A C compiler."""
    return own_compiler()


def build(compiler: list[str], folder: Path, sanitizer: str, *options: str) -> Path:
    """The driver, instrumented; skips where the compiler has no such sanitizer."""
    program, empty = folder / "sanitized", folder / "empty.c"
    flags = ["-O1", "-g", f"-fsanitize={sanitizer}", "-fno-sanitize-recover=all", *options]
    empty.write_text("int main(void) { return 0; }\n")
    command = [*compiler, *flags, str(empty), "-o", str(program)]
    if subprocess.run(command, capture_output=True, timeout=240, check=False).returncode:
        pytest.skip(f"the compiler has no -fsanitize={sanitizer}")
    compile_c(compiler, *flags, str(HERE / "sanitized.c"), "-o", str(program), "-lm")
    return program


def run(program: Path) -> subprocess.CompletedProcess[str]:
    # Thread sanitizer needs fixed addresses where the system randomises more than it knows.
    command = [str(program)]
    if shutil.which("setarch"):
        command = ["setarch", os.uname().machine, "-R", *command]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize("sanitizer", [MEMORY, THREADS])
def test_the_kernels_are_clean(compiler: list[str], sanitizer: str, tmp_path: Path) -> None:
    found = run(build(compiler, tmp_path, sanitizer))

    assert (found.returncode, found.stdout) == (0, "ok\n"), found.stderr[-3000:]


@pytest.mark.parametrize("sanitizer", [MEMORY, THREADS])
def test_the_kernels_for_amx_are_clean_in_emulation(
    compiler: list[str], sanitizer: str, tmp_path: Path
) -> None:
    needs_avx512_bf16()
    options = (*TILES, "-DBEST=SG_AMX", "-DSG_PROBE_SECONDS=100")
    found = run(build(compiler, tmp_path, sanitizer, *options))

    assert (found.returncode, found.stdout) == (0, "ok\n"), found.stderr[-3000:]


@pytest.mark.parametrize(
    ("sanitizer", "fault", "report"),
    [
        (MEMORY, "-DSHORT", "heap-buffer-overflow"),
        (THREADS, "-DRACE", "data race"),
    ],
)
def test_a_planted_fault_is_reported(
    compiler: list[str], sanitizer: str, fault: str, report: str, tmp_path: Path
) -> None:
    found = run(build(compiler, tmp_path, sanitizer, fault))

    assert found.returncode != 0
    assert report in found.stderr

"""attention.c under the sanitizers of a C compiler; planted faults show that they look."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
SOURCES = HERE.parents[2] / "src" / "samgraph" / "engines" / "native"
MEMORY, THREADS = "address,undefined", "thread"


@pytest.fixture(scope="module")
def compiler() -> str:
    """A C compiler."""
    for name in ("cc", "gcc", "clang"):
        found = shutil.which(name)
        if found:
            return found
    pytest.skip("there is no C compiler here")


def build(compiler: str, folder: Path, sanitizer: str, *options: str) -> Path:
    """The driver, instrumented; skips where the compiler has no such sanitizer."""
    program, empty = folder / "sanitized", folder / "empty.c"
    flags = ["-O1", "-g", "-std=gnu11", "-pthread", f"-fsanitize={sanitizer}"]
    flags += ["-fno-sanitize-recover=all"]
    empty.write_text("int main(void) { return 0; }\n")
    for source, more in ((empty, []), (HERE / "sanitized.c", ["-I", str(SOURCES), "-lm"])):
        command = [compiler, *flags, *options, str(source), "-o", str(program), *more]
        made = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
        if source == empty and made.returncode:
            pytest.skip(f"the compiler has no -fsanitize={sanitizer}")
        assert made.returncode == 0, made.stderr[-2000:]
    return program


def run(program: Path) -> subprocess.CompletedProcess[str]:
    # Thread sanitizer needs fixed addresses where the system randomises more than it knows.
    command = [str(program)]
    if shutil.which("setarch"):
        command = ["setarch", os.uname().machine, "-R", *command]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize("sanitizer", [MEMORY, THREADS])
def test_the_kernels_are_clean(compiler: str, sanitizer: str, tmp_path: Path) -> None:
    found = run(build(compiler, tmp_path, sanitizer))

    assert (found.returncode, found.stdout) == (0, "ok\n"), found.stderr[-3000:]


@pytest.mark.parametrize(
    ("sanitizer", "fault", "report"),
    [
        (MEMORY, "-DSHORT", "heap-buffer-overflow"),
        (THREADS, "-DRACE", "data race"),
    ],
)
def test_a_planted_fault_is_reported(
    compiler: str, sanitizer: str, fault: str, report: str, tmp_path: Path
) -> None:
    found = run(build(compiler, tmp_path, sanitizer, fault))

    assert found.returncode != 0
    assert report in found.stderr

"""The README's first program prints what it says it prints."""

import contextlib
import io
import re
from pathlib import Path

import pytest

from tests.checkpoint.built_in import needs_built_in

ROOT = Path(__file__).resolve().parents[2]
PRINTED = re.compile(r"^print\(.*?\)\s+# (?P<text>.+)$", re.MULTILINE)


def first_program() -> str:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    found = re.search(r"```python\n(.*?)```", text, re.DOTALL)
    assert found is not None
    return found[1]


@needs_built_in
def test_the_first_program_prints_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "docs").symlink_to(ROOT / "docs")
    monkeypatch.chdir(tmp_path)
    program, printed = first_program(), io.StringIO()

    with contextlib.redirect_stdout(printed):
        exec(compile(program, "README.md", "exec"), {})

    expected = [found["text"] for found in PRINTED.finditer(program)]
    assert expected
    assert printed.getvalue().splitlines() == expected
    assert (tmp_path / "cutout.png").exists()

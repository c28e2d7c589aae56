"""The notebooks in `examples/` run from top to bottom, and hold no outputs."""

import ast
import json
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
NOTEBOOKS = sorted(EXAMPLES.glob("*.ipynb"))


def cells(path: Path) -> list[dict[str, Any]]:
    document = json.loads(path.read_text(encoding="utf-8"))
    assert (document["nbformat"], document["nbformat_minor"]) == (4, 5)
    found: list[dict[str, Any]] = document["cells"]
    return found


def run_cell(source: str, names: dict[str, Any]) -> Any:
    """Run a cell as a notebook does; the value of its last line, if that is an expression."""
    tree = ast.parse(source)
    last = tree.body[-1] if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    if last is not None:
        tree.body.pop()
    exec(compile(tree, "cell", "exec"), names)
    if last is None:
        return None
    return eval(compile(ast.Expression(last.value), "cell", "eval"), names)


def show(value: Any) -> None:
    """What a notebook does with the value of a cell."""
    for name in ("_repr_html_", "_repr_png_"):
        if hasattr(value, name):
            getattr(value, name)()
    repr(value)


def test_there_are_four() -> None:
    assert len(NOTEBOOKS) == 4


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(EXAMPLES)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    names: dict[str, Any] = {"__name__": "__main__"}
    before = sorted(EXAMPLES.rglob("*"))

    for cell in cells(path):
        if cell["cell_type"] == "code":
            assert not cell["outputs"]
            show(run_cell("".join(cell["source"]), names))

    assert sorted(EXAMPLES.rglob("*")) == before


def test_the_runner_sees_a_cell_that_fails() -> None:
    with pytest.raises(ZeroDivisionError):
        run_cell("x = 1\nx / 0", {})
    assert run_cell("x = 2\nx + 1", {}) == 3

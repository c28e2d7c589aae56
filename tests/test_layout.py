"""Rules of the house that a machine can check: who imports whom, sizes, what may not be written."""

import ast
import json
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "samgraph"
FILES = sorted(SOURCE.rglob("*.py"))

# A part imports only from itself and from those above it. `__init__` shows the public names and
# `__main__` starts the command line. Results save themselves, so formats stand before predict.
ORDER = (
    "errors", "version", "untrusted", "progress", "graph", "ops", "passes", "engines", "exporters",
    "runtime",
    "checkpoint", "models", "media", "formats", "predict", "evaluate", "jobs", "compat",
    "serve", "cli", "scale",
)  # fmt: skip
OUTSIDE = {"__init__", "__main__"}

FILE_LINES, FUNCTION_LINES = 400, 60
MOST_MODULES = 60  # that `import samgraph` brings along: it takes a few milliseconds
HEAVY = ("openvino", "torch", "PIL", "av", "starlette", "numpy", "click", "rich", "safetensors")
# Folders of tests/ that mirror no folder of the package.
EXTRAS = {
    "benchmarks",
    "browser",
    "e2e",
    "examples",
    "golden",
    "hostile",
    "load",
    "parity",
    "training",
}
VAGUE = {"utils", "helpers", "common", "misc", "util", "helper"}


def part_of(path: Path) -> str:
    """The part of the package a file belongs to."""
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported_parts(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and part of every import of our own, wherever it stands."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names = [node.module]
            if node.module == "samgraph":
                names = [f"samgraph.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            words = name.split(".")
            if words[0] == "samgraph" and len(words) > 1:
                yield node.lineno, words[1]


def wrong_imports(path: Path) -> list[str]:
    """Imports of parts that stand below the file's own."""
    here = part_of(path)
    if here in OUTSIDE:
        return []
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return [
        f"{path.relative_to(ROOT)}:{line} imports samgraph.{part}"
        for line, part in imported_parts(tree)
        if part in ORDER and ORDER.index(part) > ORDER.index(here)
    ]


def test_a_part_imports_only_from_those_above_it() -> None:
    wrong = [line for path in FILES for line in wrong_imports(path)]

    assert not wrong, "\n".join(wrong)


def test_only_the_command_line_knows_its_library() -> None:
    """Jobs are started by a server and by batch runs, too."""
    outside = [
        str(path.relative_to(ROOT))
        for path in FILES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if (isinstance(node, ast.Import) and any(a.name.startswith("click") for a in node.names))
        or (isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "click")
    ]

    assert outside
    assert {part_of(SOURCE / Path(name).relative_to("src/samgraph")) for name in outside} == {"cli"}


def test_every_part_has_its_place_in_the_order() -> None:
    parts = {part_of(path) for path in FILES}

    assert parts - OUTSIDE <= set(ORDER)


def test_imports_are_absolute() -> None:
    relative = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in FILES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and node.level
    ]

    assert not relative


def test_the_import_rule_sees_what_it_should() -> None:
    """The detector is tried on planted imports, also inside functions."""
    text = "def f():\n    from samgraph.cli import main\nimport samgraph.graph.dims\n"

    found = list(imported_parts(ast.parse(text)))

    assert sorted(found) == [(2, "cli"), (3, "graph")]
    assert list(imported_parts(ast.parse("from samgraph import ops, graph"))) == [
        (1, "ops"),
        (1, "graph"),
    ]


def code_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """The lines of a function, its docstring not counted."""
    first, total = function.body[0], (function.end_lineno or 0) - function.lineno + 1
    if ast.get_docstring(function) is not None:
        total -= (first.end_lineno or 0) - first.lineno + 1
    return total


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_file_fits_in_ones_head(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)

    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    lengths = {n.name: code_lines(n) for n in ast.walk(tree) if isinstance(n, functions)}
    assert len(text.splitlines()) <= FILE_LINES
    assert not {name: count for name, count in lengths.items() if count > FUNCTION_LINES}


def forbidden(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """What may not be written: failures without a name or without a word."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assert):
            yield node.lineno, "assert"
        if isinstance(node, ast.ExceptHandler) and node.type is None:
            yield node.lineno, "bare except"
        if isinstance(node, ast.Raise) and node.exc is not None:
            call = node.exc
            name = call.func if isinstance(call, ast.Call) else call
            if isinstance(name, ast.Name) and name.id in ("Exception", "BaseException"):
                yield node.lineno, f"raise {name.id}"
            if isinstance(call, ast.Call) and not call.args and not call.keywords:
                yield node.lineno, "raise without a word"


def test_failures_have_names_and_words() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line} {what}"
        for path in FILES
        for line, what in forbidden(ast.parse(path.read_text(encoding="utf-8")))
    ]

    assert not wrong, "\n".join(wrong)


def test_the_failure_rule_sees_what_it_should() -> None:
    text = (
        "assert x\n"
        "try:\n    pass\nexcept:\n    raise\n"
        "raise Exception('a')\n"
        "raise Exception\n"
        "raise ValueError()\n"
        "raise ValueError('why')\n"
    )

    found = [what for _, what in sorted(forbidden(ast.parse(text)))]

    assert found == [
        "assert", "bare except", "raise Exception", "raise Exception", "raise without a word",
    ]  # fmt: skip


def test_files_are_named_after_what_is_in_them() -> None:
    """But for `compat`, whose modules have the names of another library's."""
    assert not [path for path in FILES if path.stem in VAGUE and part_of(path) != "compat"]


def strays(folders: Iterable[str]) -> list[str]:
    """Folders with tests, relative to tests/, that neither mirror the package nor are extras."""
    return [
        folder
        for folder in folders
        if folder.split("/")[0] not in EXTRAS and not (SOURCE / folder).is_dir()
    ]


def test_tests_mirror_the_package() -> None:
    tests = ROOT / "tests"

    folders = {str(path.parent.relative_to(tests)) for path in tests.rglob("test_*.py")}

    assert {"engines/openvino", "media/video", "golden"} <= folders
    assert not strays(folders)


def test_the_mirror_rule_sees_what_it_should() -> None:
    assert strays(["media/video", "hostile/kept", "."]) == []
    assert strays(["media/film", "loose"]) == ["media/film", "loose"]


def test_every_error_raised_on_purpose_is_one_of_ours() -> None:
    """`raise` names a class of errors.py, or one of those that Python itself asks for."""
    ours = {
        node.name
        for node in ast.parse((SOURCE / "errors.py").read_text(encoding="utf-8")).body
        if isinstance(node, ast.ClassDef)
    }
    python = {"AttributeError", "StopIteration", "AssertionError"}  # the last: our broken promises
    assert "ShapeError" in ours
    strangers = []
    for path in FILES:
        if part_of(path) not in ("graph", "ops", "passes", "engines", "runtime"):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Raise) or not isinstance(node.exc, ast.Call):
                continue
            name = node.exc.func.id if isinstance(node.exc.func, ast.Name) else ""
            caught_there = name == "ValueError" and path.name == "dims.py"
            if name.endswith("Error") and name not in ours | python and not caught_there:
                strangers.append(f"{path.relative_to(ROOT)}:{node.lineno} {name}")
    assert not strangers


def modules_after(statement: str) -> set[str]:
    """The modules that a statement brings into a new process."""
    code = (
        f"import sys, json; known = set(sys.modules); {statement}; "
        "print(json.dumps(sorted(set(sys.modules) - known)))"
    )
    child = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": str(ROOT / "src"), "PATH": "/usr/bin:/bin"},
    )
    return set(json.loads(child.stdout))


def test_importing_the_package_brings_little_and_no_engine() -> None:
    modules = modules_after("import samgraph")

    assert not {name.split(".")[0] for name in modules} & set(HEAVY)
    assert len(modules) <= MOST_MODULES


def test_the_graph_core_imports_no_engine_library() -> None:
    parts = ("graph", "ops", "passes", "runtime")
    modules = modules_after("import " + ", ".join(f"samgraph.{part}" for part in parts))

    assert not {name.split(".")[0] for name in modules} & {"openvino", "torch", "PIL", "av"}

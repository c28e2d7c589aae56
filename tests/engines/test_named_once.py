"""Nothing outside an engine's folder names the engine, but for two tables and its exporter."""

import ast
from collections.abc import Iterator
from pathlib import Path

from samgraph.engines import engine_names

SOURCE = Path(__file__).resolve().parents[2] / "src" / "samgraph"
TABLES = (SOURCE / "engines" / "protocol.py", SOURCE / "exporters" / "protocol.py")
# Names of classes in a pickled checkpoint, and of the library that a program has imported.
NOT_ENGINES = (SOURCE / "checkpoint" / "pickle_records.py", SOURCE / "compat" / "host.py")


def names_in(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and engine of every string that is an engine's name, and of every import of one."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and node.value in engine_names():
            yield node.lineno, str(node.value)
        if isinstance(node, ast.ImportFrom | ast.Import):
            modules = [alias.name for alias in node.names]
            for module in [node.module or ""] if isinstance(node, ast.ImportFrom) else modules:
                words = module.split(".")
                if (
                    words[:2] == ["samgraph", "engines"]
                    and words[2:3]
                    and words[2] in engine_names()
                ):
                    yield node.lineno, words[2]


def test_no_other_part_names_an_engine() -> None:
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        if path in (*TABLES, *NOT_ENGINES):
            continue
        inside = path.relative_to(SOURCE).parts[:2]
        for line, name in names_in(ast.parse(path.read_text(encoding="utf-8"))):
            if inside not in (("engines", name), ("exporters", name)):
                found.append(f"{path.relative_to(SOURCE)}:{line} names `{name}`")

    assert not found, "\n".join(found)


def test_the_rule_sees_what_it_should() -> None:
    text = (
        'if engine.name == "reference":\n    pass\n'
        'KEPT = ("torch", "openvino")\n'
        "from samgraph.engines.openvino.engine import build\n"
        "import samgraph.engines.torch\n"
        "from samgraph.engines import find_engine\n"
        'text = "torch is not installed"\n'
    )

    found = sorted(names_in(ast.parse(text)))

    assert found == [(1, "reference"), (3, "openvino"), (3, "torch"), (4, "openvino"), (5, "torch")]

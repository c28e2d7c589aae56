"""The table OPS x ENGINES x dtypes: every engine agrees with the numpy reference.

Twenty-five random uses of an op are compiled as one graph, because compiling costs more than
running; a failure names each use that is wrong.
"""

import pytest
from hypothesis import Phase, given, settings

from samgraph.engines import find_engine
from samgraph.engines.native import NATIVE_OPS
from samgraph.engines.openvino.lowering import LOWER
from samgraph.graph.types import FLOATS, DType
from samgraph.ops import OPS
from tests.engines.present import ENGINES
from tests.ops.agreement import disagreements
from tests.ops.cases import CASES, TAKES, Case, batches

BATCH = 25
JUDGED = tuple(name for name in ENGINES if name != "reference")
ROWS: tuple[tuple[str, int], ...] = (("f32", 3), ("f16", 1), ("whole", 1))  # graphs of each kind


def _dtypes(op: str, row: str) -> tuple[DType, ...]:
    if row == "whole":
        return TAKES.get(op, ())
    return tuple(dtype for dtype in FLOATS if dtype == row)


TABLE = [
    (engine, op, row, graphs)
    for engine in JUDGED
    for op in CASES
    for row, graphs in ROWS
    if _dtypes(op, row)
]


def test_every_op_has_cases() -> None:
    assert set(CASES) == set(OPS)


@pytest.mark.parametrize("engine", JUDGED)
def test_an_engine_runs_the_dtypes_it_declares(engine: str) -> None:
    assert {"f32", "f16", "i64", "i32", "u8", "bool"} <= find_engine(engine).dtypes


def test_openvino_has_a_rule_or_a_decomposition_for_every_op() -> None:
    engine = find_engine("openvino")
    decomposed = {step.name.removeprefix("decompose_") for step in engine.passes if step.required}

    assert engine.ops == set(LOWER) | NATIVE_OPS
    assert set(OPS) - engine.ops <= decomposed


def test_at_least_a_hundred_uses_of_every_op_are_tried() -> None:
    assert sum(graphs for row, graphs in ROWS if row != "whole") * BATCH >= 100


@pytest.mark.parametrize(("engine", "op", "row", "graphs"), TABLE)
def test_engine_agrees_with_the_reference(engine: str, op: str, row: str, graphs: int) -> None:
    @settings(max_examples=graphs, phases=[Phase.generate])
    @given(batches(op, _dtypes(op, row), BATCH))
    def check(drawn: list[Case]) -> None:
        problems = disagreements(engine, drawn)
        assert not problems, "\n".join(problems)

    check()


@pytest.mark.parametrize("op", CASES)
@pytest.mark.parametrize("engine", JUDGED)
def test_engine_agrees_after_its_passes(engine: str, op: str) -> None:
    @settings(max_examples=1, phases=[Phase.generate])
    @given(batches(op, ("f32",), BATCH))
    def check(drawn: list[Case]) -> None:
        problems = disagreements(engine, drawn, "fused")
        assert not problems, "\n".join(problems)

    check()

"""A model with large intermediate values gives their memory back; smaller ones keep it."""

import ctypes
import gc
import importlib
import weakref
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest

from samgraph import ops
from samgraph.engines.openvino import scratch
from samgraph.engines.openvino.program import ModelStage, OpenVinoProgram
from samgraph.engines.openvino.scratch import MOST_KEPT_BYTES, largest_value, trim_heap
from samgraph.graph import Builder, Graph
from samgraph.runtime import CompileOptions, Session

compiler: Any = importlib.import_module("samgraph.engines.openvino.engine")  # not the object
ROWS, WIDE = 16384, 2048
HIDDEN_BYTES = 4 * ROWS * WIDE


def mlp(rows: int | str = ROWS, wide: int = WIDE) -> tuple[Graph, dict[str, Any]]:
    builder = Builder("mlp")
    x = builder.input("x", f"f32[{rows},16]")
    shapes = {"first": (wide, 16), "second": (16, wide)}
    sides = {name: builder.param(name, f"f32[{o},{i}]") for name, (o, i) in shapes.items()}
    y = ops.linear(ops.relu(ops.linear(x, sides["first"])), sides["second"])
    values = np.random.default_rng(3)
    weights = {name: values.standard_normal(shape, np.float32) for name, shape in shapes.items()}
    return builder.finish(y=y), weights


def compiled(folder: Path | None = None, **sizes: Any) -> tuple[Any, ModelStage]:
    options: dict[str, Any] = {"cache": folder is not None, "cache_dir": folder, "threads": 1}
    found = Session("cpu", CompileOptions(engine="openvino", **options)).compile(*mlp(**sizes))
    assert isinstance(found._program, OpenVinoProgram)
    stage = found._program._stages[0]
    assert isinstance(stage, ModelStage)
    return found, stage


def inputs(rows: int = ROWS) -> Any:
    return np.random.default_rng(0).standard_normal((rows, 16), np.float32)


@pytest.fixture
def released(monkeypatch: pytest.MonkeyPatch) -> list[ModelStage]:
    """The stages that gave their memory back, in order."""
    found: list[ModelStage] = []
    release = ModelStage._release

    def spy(stage: ModelStage) -> None:
        found.append(stage)
        release(stage)

    monkeypatch.setattr(ModelStage, "_release", spy)
    return found


@pytest.mark.parametrize("is_cached", [False, True])
def test_memory_of_large_values_is_free_between_runs(is_cached: bool, tmp_path: Path) -> None:
    if is_cached:
        compiled(tmp_path)  # the next one is restored
    found, _ = compiled(tmp_path if is_cached else None)
    x = inputs()
    before = compiler._resident()

    first = found.run(x=x)["y"]
    grown = compiler._resident() - before
    second = found.run(x=x)["y"]

    assert before > 0, "no /proc here"
    assert grown < HIDDEN_BYTES / 2
    assert np.array_equal(first, second)


def test_it_stays_taken_where_nothing_gives_it_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ModelStage, "_release", lambda self: None)  # the planted fault
    found, _ = compiled()
    x = inputs()
    before = compiler._resident()

    y = found.run(x=x)["y"]

    assert compiler._resident() - before > HIDDEN_BYTES / 2
    assert y.shape == (ROWS, 16)


def test_a_small_graph_keeps_its_memory(released: list[ModelStage]) -> None:
    found, stage = compiled(rows=64)

    found.run(x=inputs(64))

    assert released == []
    assert stage._idle.qsize() == 1


def test_a_run_beside_another_releases_nothing(released: list[ModelStage]) -> None:
    found, stage = compiled()
    alone = found.run(x=inputs())["y"]
    assert released == [stage]

    stage._running += 1
    beside = found.run(x=inputs())["y"]
    stage._running -= 1

    assert released == [stage]
    assert np.array_equal(beside, alone)


def test_inputs_and_outputs_of_a_large_model_are_the_callers_alone() -> None:
    found, _ = compiled()
    x = inputs()
    y = found.run(x=x)["y"]
    arrays = [weakref.ref(x), weakref.ref(y)]

    del x, y
    gc.collect()

    assert [array() for array in arrays] == [None, None]


def test_a_symbol_counts_one() -> None:
    assert largest_value(mlp()[0]) == HIDDEN_BYTES > MOST_KEPT_BYTES
    assert largest_value(mlp(rows="N")[0]) == 4 * WIDE


def test_large_constants_are_copied_once_for_all_models() -> None:
    builder = Builder("table")
    x = builder.input("x", "f32[1024,512]")
    graph = builder.finish(y=x + builder.constant(np.ones((1024, 512), np.float32)))
    tables: dict[int, Any] = {}

    for _ in range(2):
        compiler.build(graph, {}, tables)

    assert [table.nbytes for table in tables.values()] == [1024 * 512 * 4]


def test_heaps_that_cannot_be_trimmed_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: object) -> NoReturn:
        raise OSError(name)

    scratch._malloc_trim.cache_clear()
    with monkeypatch.context() as patch:
        patch.setattr(ctypes, "CDLL", refuse)
        trim_heap()
    scratch._malloc_trim.cache_clear()

    trim_heap()

"""Runs at the same time: a graph is compiled again with a thread for each, and gives the same."""

import importlib
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from samgraph import ops
from samgraph.engines.openvino.program import ModelStage, OpenVinoProgram
from samgraph.graph import Builder, Graph
from samgraph.runtime import CompileOptions, Session
from samgraph.runtime.options import core_count

needs_cores = pytest.mark.skipif(core_count() < 2, reason="one core runs one graph at a time")
SECONDS = 60.0


def graph() -> tuple[Graph, dict[str, Any]]:
    builder = Builder("two_layers")
    x = builder.input("x", "f32[B,16]")
    weights = {}
    for name in ("first", "second"):
        w = builder.param(name, "f32[16,16]")
        weights[name] = np.random.default_rng(len(name)).standard_normal((16, 16), np.float32)
        x = ops.relu(ops.linear(x, w))
    return builder.finish(y=x), weights


def compiled(**options: Any) -> tuple[Any, ModelStage]:
    session = Session("cpu", CompileOptions(engine="openvino", **options))
    found = session.compile(*graph())
    program = found._program
    assert isinstance(program, OpenVinoProgram)
    stage = program._stages[0]
    assert isinstance(stage, ModelStage)
    return found, stage


def settle(stage: ModelStage) -> None:
    """Wait for the thread that compiles."""
    end = time.monotonic() + SECONDS
    while stage.shared is None and time.monotonic() < end:
        time.sleep(0.01)


def run_beside_another(found: Any, stage: ModelStage, x: Any) -> Any:
    """A run while another is under way."""
    stage._running += 1
    try:
        return found.run(x=x)["y"]
    finally:
        stage._running -= 1


@needs_cores
@pytest.mark.parametrize("is_cached", [False, True])
def test_a_second_run_does_not_wait_for_the_first(is_cached: bool, tmp_path: Path) -> None:
    options: dict[str, Any] = {"threads": 2, "cache": is_cached, "cache_dir": tmp_path}
    if is_cached:
        compiled(**options)  # the next one is restored
    found, stage = compiled(**options)
    x = np.random.default_rng(0).standard_normal((3, 16), np.float32)
    alone = found.run(x=x)["y"]
    assert stage.shared is None

    first = run_beside_another(found, stage, x)
    settle(stage)
    second = run_beside_another(found, stage, x)

    assert stage.shared is not None
    assert stage._shared_idle.qsize() == 1  # it ran there
    assert np.array_equal(first, alone)
    assert np.array_equal(second, alone)
    assert stage._running == 0


@needs_cores
def test_large_graphs_and_single_threads_are_compiled_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x = np.ones((1, 16), np.float32)
    single, stage = compiled(threads=1, cache=False)
    run_beside_another(single, stage, x)
    assert stage._widen is None
    module = importlib.import_module("samgraph.engines.openvino.engine")
    monkeypatch.setattr(module, "MOST_SHARED_BYTES", 100)
    large, stage = compiled(threads=2, cache=False)
    run_beside_another(large, stage, x)
    assert stage._widen is None
    assert stage.shared is None


@needs_cores
def test_where_it_fails_runs_go_on_one_after_another() -> None:
    found, stage = compiled(threads=2, cache=False)

    def fail() -> Any:
        raise RuntimeError("no memory")

    stage._widen = fail
    x = np.ones((1, 16), np.float32)
    first = run_beside_another(found, stage, x)
    assert np.array_equal(run_beside_another(found, stage, x), first)
    assert stage.shared is None


@needs_cores
def test_many_threads_get_their_own_results() -> None:
    found, stage = compiled(threads=2, cache=False)
    inputs = [np.full((2, 16), i, np.float32) for i in range(64)]
    expected = [found.run(x=x)["y"] for x in inputs]

    with ThreadPoolExecutor(8) as pool:
        actual = list(pool.map(lambda x: found.run(x=x)["y"], inputs * 4))

    for got, want in zip(actual, expected * 4, strict=True):
        assert np.array_equal(got, want)
    assert stage._running == 0

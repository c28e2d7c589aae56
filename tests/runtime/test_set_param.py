"""Replacing a weight of a compiled graph: seen by the next run, folded anew, on every engine."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from samgraph import ops
from samgraph.errors import CheckpointError
from samgraph.graph import Builder, Graph
from samgraph.graph.types import Array
from samgraph.runtime import CompiledGraph, CompileOptions, Session
from tests.engines.present import ENGINES
from tests.runtime.graphs import mlp

X = np.random.default_rng(5).standard_normal((6, 8)).astype(np.float32)


def folded() -> tuple[Graph, dict[str, Array]]:
    """A graph in which passes join the weights: a scale absorbed, two linear layers merged."""
    builder = Builder("folded")
    x, scale = builder.input("x", "f32[M,8]"), builder.param("scale", "f32[32]")
    wide = ops.linear(x, builder.param("w1", "f32[32,8]"), builder.param("b1", "f32[32]")) * scale
    graph = builder.finish(y=ops.linear(wide, builder.param("w2", "f32[4,32]")))
    rng = np.random.default_rng(0)
    shapes = {value.name: value.type.lengths for value in graph.params}
    return graph, {name: rng.standard_normal(s).astype(np.float32) for name, s in shapes.items()}


def compiled(engine: str, made: tuple[Graph, dict[str, Array]]) -> CompiledGraph:
    return Session("cpu", CompileOptions(engine=engine, threads=1, cache=False)).compile(*made)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", ["scale", "w1", "b1", "w2"])
def test_the_next_run_uses_the_new_weight(engine: str, name: str) -> None:
    graph, weights = folded()
    new = {**weights, name: weights[name] * 2 + 1}
    changed = compiled(engine, (graph, weights))
    before = changed.run(x=X)["y"]

    changed.set_param(name, new[name])

    after = changed.run(x=X)["y"]
    np.testing.assert_array_equal(after, compiled(engine, (graph, new)).run(x=X)["y"])
    assert not np.allclose(after, before)


def test_changes_add_up_and_the_array_stays_the_callers() -> None:
    graph, weights = mlp()
    changed = compiled("openvino", (graph, weights))
    bias, late = np.ones(16, np.float32), np.zeros((4, 16), np.float32)

    changed.set_param("layers.0.bias", bias)
    bias += 5  # ours no longer
    changed.set_params(
        {"layers.0.weight": weights["layers.0.weight"] * 0, "layers.1.weight": late + 1}
    )

    y = changed.run(x=X)["y"]
    expected = 16 * 0.8413447  # gelu(1), sixteen times
    np.testing.assert_allclose(y, expected, rtol=1e-5)
    changed.set_params({})
    np.testing.assert_array_equal(changed.run(x=X)["y"], y)


@pytest.mark.parametrize(
    ("name", "array", "message"),
    [
        (
            "layers.0.bia",
            np.ones(16, np.float32),
            "graph `mlp` has no param `layers.0.bia`\n  hint: did you mean `layers.0.bias`?",
        ),
        ("x", X, "graph `mlp` has no param `x`"),
        (
            "layers.0.bias",
            np.ones(8, np.float32),
            "weight `layers.0.bias` has the wrong type\n  got:      f32[8]\n  expected: f32[16]",
        ),
        (
            "layers.0.bias",
            [1.0] * 16,
            "weight `layers.0.bias` has the wrong type\n  got:      f64[16]\n  expected: f32[16]",
        ),
    ],
)
def test_what_does_not_fit_is_refused_and_changes_nothing(
    name: str, array: Any, message: str
) -> None:
    changed = compiled("openvino", mlp())
    before = changed.run(x=X)["y"]

    with pytest.raises(CheckpointError) as caught:
        changed.set_param(name, array)

    assert str(caught.value) == message
    np.testing.assert_array_equal(changed.run(x=X)["y"], before)


def test_nothing_is_written_to_the_cache_for_it(tmp_path: Path) -> None:
    options = CompileOptions(threads=1, cache_dir=tmp_path)
    changed = Session("cpu", options).compile(*mlp())

    changed.set_param("layers.0.bias", np.ones(16, np.float32))

    assert len(list((tmp_path / "graphs").iterdir())) == 1


def test_runs_beside_a_change_use_the_old_weights_or_the_new() -> None:
    graph, weights = mlp()
    changed = compiled("openvino", (graph, weights))
    values = [weights["layers.0.bias"] + n for n in range(3)]
    right = {
        compiled("openvino", (graph, {**weights, "layers.0.bias": v})).run(x=X)["y"].tobytes()
        for v in values
    }

    with ThreadPoolExecutor(4) as pool:
        runs = [pool.submit(lambda: changed.run(x=X)["y"].tobytes()) for _ in range(60)]
        changes = [pool.submit(changed.set_param, "layers.0.bias", v) for v in values]
        runs += [pool.submit(lambda: changed.run(x=X)["y"].tobytes()) for _ in range(60)]

    assert {run.result() for run in runs} <= right
    assert all(change.result() is None for change in changes)

"""A graph compiled in stages: the same results, and every value between stages by name."""

import numpy as np
import pytest

from samgraph import ops
from samgraph.errors import InputError
from samgraph.graph import Array, Builder, Graph
from samgraph.runtime import CompiledGraph, CompileOptions, Session, SplitGraph
from tests.engines.present import ENGINES


def marked() -> Graph:
    """Its output is called like its input."""
    builder = Builder("marked")
    x = builder.input("x", "f32[N,4]")
    at = builder.scope() / "layer"
    hidden = at.mark("hidden", ops.relu(ops.linear(x, at.weight("weight", 8, 4))))
    return builder.finish(x=ops.exp(hidden) + 1.0)


def weights() -> dict[str, Array]:
    return {"layer.weight": np.linspace(-1, 1, 32, dtype=np.float32).reshape(8, 4)}


def compiled(engine: str, profile: str) -> CompiledGraph:
    options = CompileOptions(engine=engine, profile=profile, cache=False, threads=1)
    return Session("cpu", options).compile(marked(), weights())


@pytest.fixture(params=ENGINES)
def split(request: pytest.FixtureRequest) -> SplitGraph:
    graph = compiled(request.param, "split")
    assert isinstance(graph, SplitGraph)
    return graph


X = np.linspace(-2, 2, 12, dtype=np.float32).reshape(3, 4)


def test_stages_run_like_the_whole(split: SplitGraph) -> None:
    whole = Session("cpu", CompileOptions(engine="reference")).compile(marked(), weights())

    found = split.run(x=X)

    assert not isinstance(whole, SplitGraph)
    assert list(found) == ["x"]
    np.testing.assert_allclose(found["x"], whole.run(x=X)["x"], rtol=1e-6)
    np.testing.assert_array_equal(split.run({"x": X})["x"], found["x"])


def test_every_value_between_stages_is_kept_by_name(split: SplitGraph) -> None:
    kept = split.run(x=X, keep=True)

    assert list(kept) == ["layer.hidden", "x"]
    np.testing.assert_allclose(
        kept["layer.hidden"], np.maximum(X @ weights()["layer.weight"].T, 0), atol=1e-6
    )
    np.testing.assert_array_equal(kept["x"], split.run(x=X)["x"])


def test_stages_and_the_whole_describe_themselves(split: SplitGraph) -> None:
    assert [stage.source.name for stage in split.stages] == ["marked.0", "marked.1"]
    assert split.source == marked()
    for part in (split, *split.stages):
        assert part.reason == split.stages[0].reason
        assert part.memory().weights >= 0
    assert split.memory().weights == sum(stage.memory().weights for stage in split.stages)


def test_inputs_are_checked_before_the_first_stage(split: SplitGraph) -> None:
    for keep in (False, True):
        with pytest.raises(InputError, match="the inputs of graph `marked` do not fit"):
            split.run(y=X, keep=keep)


def test_a_graph_without_marks_is_compiled_whole() -> None:
    builder = Builder("plain")
    graph = builder.finish(y=ops.exp(builder.input("x", "f32[M]")))
    session = Session("cpu", CompileOptions(engine="reference", profile="split"))

    assert not isinstance(session.compile(graph), SplitGraph)

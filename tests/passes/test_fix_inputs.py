"""fix_inputs: a graph for inputs that are always the same says what the whole graph says."""

import numpy as np
import pytest

from samgraph import ops
from samgraph.errors import GraphError
from samgraph.graph import Builder, Graph
from samgraph.graph.evaluation import evaluate_graph
from samgraph.models.sam2.graphs import trace_graphs
from samgraph.passes.fix_inputs import fix_inputs
from tests.graph.random_graphs import arrays_for
from tests.models.sam2.bench import config_of
from tests.tolerances import FUSED_GRAPH


def choosing() -> Graph:
    builder = Builder("choosing")
    x = builder.input("x", "f32[N,4]")
    flag = builder.input("flag", "bool[N,1]")
    extra = builder.input("extra", "f32[N,P]")
    total = ops.reduce(extra, (1,), how="max", keep=True)
    y = ops.where(flag, ops.relu(x) + total, builder.param("w", "f32[1,4]"))
    return builder.finish(y=y, z=ops.exp(x))


@pytest.mark.parametrize(("flag", "nodes"), [(True, {"relu"}), (False, {"expand"})])
def test_what_a_fixed_input_decides_is_gone(flag: bool, nodes: set[str]) -> None:
    graph = choosing()

    fixed = fix_inputs(graph, {"flag": flag, "extra": 0.0}, ["y"])

    assert [value.name for value in fixed.inputs] == ["x"]  # which binds N, read or not
    assert {node.op for node in fixed if node.op != "constant"} == nodes
    assert [name for name, _ in fixed.outputs] == ["y"]


def test_a_fixed_input_means_the_same() -> None:
    graph, sizes = choosing(), {"N": 3, "P": 2}
    inputs, weights = arrays_for(graph, sizes)
    given = {"flag": np.ones((3, 1), np.bool_), "extra": np.full((3, 2), 0.5, np.float32)}

    fixed = fix_inputs(graph, {"flag": True, "extra": 0.5})

    before = evaluate_graph(graph, {**weights, **inputs, **given}, sizes)
    after = evaluate_graph(fixed, {**weights, "x": inputs["x"]}, {"N": 3})
    for name, wanted in before.items():
        np.testing.assert_array_equal(after[name], wanted)


def test_the_decoder_of_tracked_objects_is_the_decoder_without_a_prompt() -> None:
    config = config_of({"config": "test"}).at_size(128)
    graphs, sizes = trace_graphs(config, ["decode", "decode_tracked"]), {"N": 2, "P": 1}
    whole, tracked = graphs["decode"], graphs["decode_tracked"]
    inputs, weights = arrays_for(whole, sizes)
    none = {name: np.zeros(2, np.bool_) for name in ("has_mask", "no_memory")}
    inputs |= {**none, "multimask": np.ones(2, np.bool_), "labels": np.full((2, 1), -1)}
    inputs |= {"points": np.zeros((2, 1, 2), np.float32)}

    before = evaluate_graph(whole, {**weights, **inputs}, sizes)
    names = [value.name for value in (*tracked.inputs, *tracked.params)]
    after = evaluate_graph(tracked, {n: {**weights, **inputs}[n] for n in names}, {"N": 2})

    assert set(after) == {"object_score", "best_mask", "best_iou", "pointer"}
    assert len(tracked.nodes) < 0.8 * len(whole.nodes)
    for name, value in after.items():
        scale = max(1.0, float(np.abs(before[name]).max()))
        np.testing.assert_allclose(value, before[name], atol=FUSED_GRAPH * scale)


def test_names_that_are_not_there_are_refused() -> None:
    with pytest.raises(GraphError, match="no input `flags`"):
        fix_inputs(choosing(), {"flags": True})
    with pytest.raises(GraphError, match="no output `a`"):
        fix_inputs(choosing(), {"flag": True}, ["a"])

"""Cutting a graph at its native nodes: the parts, one after another, are the whole."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings

from samgraph import ops
from samgraph.engines.openvino.segments import Segment, cut
from samgraph.graph import Builder, Graph, Value
from samgraph.graph.evaluation import evaluate_graph
from samgraph.graph.types import Array
from samgraph.graph.verifier import verify
from tests.graph.random_graphs import arrays_for, graphs

NATIVE = frozenset(("add", "attention", "axial_rope", "linear", "sin", "relu"))
SIZES = {"B": 2, "M": 3}


def run_in_turn(graph: Graph, segments: list[Segment], values: dict[str, Array]) -> list[Array]:
    """What an engine does with segments, by the reference."""
    known = dict(values)
    for segment in segments:
        part = segment.graph
        wanted = {value.name: known[value.name] for value in (*part.inputs, *part.params)}
        known |= evaluate_graph(part, wanted, SIZES)
    return [known[value.name] for _, value in graph.outputs]


def renamed(graph: Graph) -> Graph:
    """The same graph with a `v` before every name: inputs of a part may be called 0, 1, ..."""

    def named(value: Value) -> Value:
        return replace(value, name=f"v{value.name}")

    nodes = [
        replace(node, inputs=tuple(map(named, node.inputs)), result=named(node.result))
        for node in graph
    ]
    return Graph(
        graph.name,
        tuple(map(named, graph.inputs)),
        tuple(map(named, graph.params)),
        tuple(nodes),
        tuple((name, named(value)) for name, value in graph.outputs),
    )


@settings(max_examples=80)
@given(graphs(dtype="f64", steps=9))
def test_the_parts_are_the_whole(graph: Graph) -> None:
    inputs, weights = arrays_for(graph, SIZES)
    expected = evaluate_graph(graph, {**inputs, **weights}, SIZES)

    for segments in (cut(graph), cut(graph, NATIVE)):
        found = run_in_turn(graph, segments, {**inputs, **weights})
        for got, want in zip(found, expected.values(), strict=True):
            np.testing.assert_array_equal(got, want)


@settings(max_examples=80)
@given(graphs(dtype="f64", steps=9))
def test_every_part_is_a_graph_of_one_kind(graph: Graph) -> None:
    for segment in cut(graph, NATIVE):
        verify(renamed(segment.graph))
        kinds = {node.op in NATIVE for node in segment.graph if node.op != "constant"}
        assert kinds <= {segment.kind == "native"}


def test_a_graph_without_native_nodes_stays_whole() -> None:
    builder = Builder()
    x = builder.input("x", "f32[2]")
    (only,) = cut(builder.finish(y=ops.relu(x) + 1))

    assert only.kind == "model"
    assert [node.op for node in only.graph] == ["constant", "relu", "add"]


def test_a_graph_of_native_nodes_is_one_native_part() -> None:
    builder = Builder()
    x = builder.input("x", "f32[2]")
    (only,) = cut(builder.finish(y=ops.relu(x) + 1), NATIVE)

    assert only.kind == "native"
    assert sorted(node.op for node in only.graph) == ["add", "constant", "relu"]


def test_a_part_gets_the_inputs_that_tell_its_symbols() -> None:
    builder = Builder()
    x, n = builder.input("x", "f32[4*F+N,4]"), builder.input("n", "f32[N]")
    N = n.shape[0]
    y = ops.axial_rope(ops.cos(x), grid=(2, 2), theta=100.0, unrotated=N)
    first, second = cut(builder.finish(y=y, z=n), NATIVE)

    assert [value.name for value in first.graph.inputs] == ["x", "n"]
    assert [value.name for value in second.graph.inputs] == ["0", "x", "n"]
    verify(renamed(second.graph))


@pytest.mark.parametrize("native", [False, True])
def test_outputs_that_no_node_makes_are_kept(native: bool) -> None:
    builder = Builder()
    x, w = builder.input("x", "f32[2]"), builder.param("w", "f32[2]")
    fixed = builder.constant(np.ones(2), "f32")
    graph = builder.finish(y=ops.sin(x) if native else x, w=w, fixed=fixed)
    arrays = {"x": np.ones(2), "w": np.zeros(2)}

    found = run_in_turn(graph, cut(graph, NATIVE), arrays)

    np.testing.assert_array_equal(found[1], 0)
    np.testing.assert_array_equal(found[2], 1)

"""Cutting a graph: the parts, run one after another, give what the whole gives."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from samgraph import ops
from samgraph.errors import GraphError
from samgraph.graph import Array, Builder, Graph
from samgraph.graph.evaluation import evaluate_graph
from samgraph.passes.cut import cut
from samgraph.passes.hoist_shared import hoist_shared
from tests.graph.random_graphs import arrays_for, graphs
from tests.passes.test_meaning import SIZES, difference, weights_of
from tests.tolerances import ALGEBRAIC_PASS


def run(parts: Sequence[Graph], whole: Graph, sizes: dict[str, int]) -> dict[str, Array]:
    """Every value that the parts hand on or give, from random inputs of the whole."""
    known, weights = arrays_for(whole, sizes)[0], weights_of(whole)
    made: dict[str, Array] = {}
    for part in parts:
        given = {value.name: {**known, **made}[value.name] for value in part.inputs}
        bound = {value.name: weights[value.name] for value in part.params}
        made |= evaluate_graph(part, {**given, **bound}, sizes)
    return made


def expected(graph: Graph, sizes: dict[str, int]) -> dict[str, Array]:
    return evaluate_graph(graph, {**weights_of(graph), **arrays_for(graph, sizes)[0]}, sizes)


def chain() -> Graph:
    """Two marks that one stage computes, one that needs them, and one that nothing needs."""
    builder = Builder("chain")
    x = builder.input("x", "f32[N,4]")
    rows = builder.input("rows", "f32[N,M]")
    w = builder.param("w", "f32[4,4]")
    normal = ops.sin(x)
    q, k = (builder.mark(name, ops.linear(normal, w)) for name in "qk")
    builder.mark("unread", ops.exp(x))
    y = builder.mark("sum", q + k)
    tall = ops.expand(y[:, None], *rows.shape, 4)
    return builder.finish(y=ops.exp(tall), rows=rows)


def test_a_stage_computes_marks_that_do_not_need_each_other() -> None:
    first, second, third = cut(chain())

    assert [name for name, _ in first.outputs] == ["q", "k"]
    assert [value.name for value in second.inputs] == ["q", "k"]
    assert [name for name, _ in second.outputs] == ["sum"]
    assert [name for name, _ in third.outputs] == ["y", "rows"]
    assert [stage.name for stage in (first, second, third)] == ["chain.0", "chain.1", "chain.2"]
    assert [value.name for value in first.params] == ["w"]
    assert not second.params


def test_only_some_marks_cut() -> None:
    stages = cut(chain(), ["sum"])

    assert [[name for name, _ in stage.outputs] for stage in stages] == [["sum"], ["y", "rows"]]
    assert [name for name, _ in stages[0].marks] == ["q", "k"]


def test_a_graph_without_marks_is_one_stage() -> None:
    builder = Builder("plain")
    graph = builder.finish(y=ops.exp(builder.input("x", "f32[M]")))

    (stage,) = cut(graph)

    assert (stage.nodes, stage.outputs) == (graph.nodes, graph.outputs)


def test_a_mark_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(GraphError, match="graph `chain` has no mark `v`"):
        cut(chain(), ["v"])


def test_a_stage_gets_the_input_that_binds_a_symbol() -> None:
    """Neither of N and M can be found from a length of N*M."""
    builder = Builder("joined")
    x = builder.input("x", "f32[N,M,4]")
    N, M, _ = x.shape
    flat = builder.mark("flat", ops.sin(x).reshape(N * M, 4))
    graph = builder.finish(y=flat.reshape(N, M, 4))

    _, last = cut(graph)

    assert [value.name for value in last.inputs] == ["flat", "x"]


@settings(max_examples=60)
@given(graph=graphs(dtype="f64", steps=8))
def test_stages_give_what_the_graph_gives(graph: Graph) -> None:
    stages = cut(graph)

    for sizes in SIZES:
        made = run(stages, graph, sizes)
        wanted = expected(graph, sizes)
        assert difference(wanted, {name: made[name] for name in wanted}) <= ALGEBRAIC_PASS


def two_parts() -> Graph:
    builder = Builder("net")
    image, points = builder.input("image", "f32[1,6,4]"), builder.input("points", "f32[N,3,4]")
    each = ops.expand(image, *points.shape[:1], 6, 4)
    keys = builder.mark("keys", ops.linear(each, builder.param("w", "f32[4,4]")))
    y = ops.attention(points, keys, ops.sin(each), heads=1, scale=0.5)
    return builder.finish(y=y * ops.reduce(builder.param("s", "f32[2,4]"), (0,), how="sum"))


def test_what_depends_on_the_image_alone_is_in_the_first_part() -> None:
    shared, rest = hoist_shared(two_parts(), ("image",))

    assert [node.op for node in shared] == ["linear", "sin"]
    assert [name for name, _ in shared.outputs] == ["keys", "image.0"]
    assert {value.name for value in rest.inputs} == {"keys", "image.0", "points"}
    assert not {"linear", "sin", "expand"} & {node.op for node in rest}
    assert [value.name for value in rest.params] == ["s"]
    assert (shared.name, rest.name) == ("net.shared", "net.rest")


def test_what_has_the_size_of_another_input_is_in_the_second_part() -> None:
    """Queries of the image are projected once, and repeated for each prompt in the rest."""
    builder = Builder("net")
    image, points = builder.input("image", "f32[1,6,4]"), builder.input("points", "f32[N,3,4]")
    q = ops.linear(image, builder.param("w", "f32[4,4]"))
    each = ops.expand(q, *points.shape[:1], 6, 4)
    graph = builder.finish(y=ops.attention(each, points, points, heads=1, scale=0.5))

    shared, rest = hoist_shared(graph, ["image"])

    assert [node.op for node in shared] == ["linear"]
    assert [value.name for value in shared.inputs] == ["image"]
    assert [node.op for node in rest] == ["expand", "attention"]


def test_an_input_that_nothing_reads_is_an_input_of_the_second_part() -> None:
    builder = Builder("net")
    image, points = builder.input("image", "f32[4]"), builder.input("points", "f32[4]")
    builder.input("unread", "f32[N]")
    graph = builder.finish(y=ops.sin(image) + points)

    shared, rest = hoist_shared(graph, ["image"])

    assert [value.name for value in shared.inputs] == ["image"]
    assert {value.name for value in rest.inputs} == {"image.0", "points", "unread"}


def test_parts_are_called_what_the_caller_says() -> None:
    shared, rest = hoist_shared(two_parts(), ("image",), ("first", "second"))

    assert (shared.name, rest.name) == ("first", "second")


def test_nothing_to_hoist_is_an_error() -> None:
    builder = Builder("sum")
    a, b = builder.input("a", "f32[4]"), builder.input("b", "f32[4]")
    graph = builder.finish(y=ops.sin(a + b))

    with pytest.raises(GraphError, match="nothing in graph `sum` depends on these inputs alone"):
        hoist_shared(graph, ["a"])
    with pytest.raises(GraphError, match="graph `sum` has no input `c`"):
        hoist_shared(graph, ["c"])


@settings(max_examples=60)
@given(
    graph=graphs(dtype="f64", steps=8, step="sink_expand"),
    name=st.sampled_from(["x", "side.input"]),
)
def test_both_parts_give_what_the_graph_gives(graph: Graph, name: str) -> None:
    names = [value.name for value in graph.inputs]
    try:
        parts = hoist_shared(graph, [name if name in names else "x"])
    except GraphError:  # nothing depends on it alone
        return

    for sizes in SIZES:
        made = run(parts, graph, sizes)
        wanted = expected(graph, sizes)
        assert difference(wanted, {key: made[key] for key in wanted}) <= ALGEBRAIC_PASS

"""The pipeline: order, switching off, watching, and naming the pass that broke a graph."""

import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from samgraph import ops
from samgraph.engines import find_engine
from samgraph.errors import GraphError, OptionError
from samgraph.graph import Builder, Graph, TensorType, Value
from samgraph.passes import COMMON, PASSES, Step, fold_params, optimise, passes_for
from samgraph.passes.pipeline import Precision
from samgraph.passes.rewriter import Rewriter
from samgraph.passes.tile_sums import tile_sums
from samgraph.runtime import PROFILES, CompileOptions, Profile, Session
from tests.engines.present import ENGINES
from tests.passes.every_pass import EVERY_PASS


def two_maps() -> Graph:
    builder = Builder("two")
    x = builder.input("x", "f32[M,4]")
    first = ops.relu(ops.linear(x, builder.param("w1", "f32[4,4]")))
    second = ops.linear(x, builder.param("w2", "f32[4,4]"))
    return builder.finish(y=first, z=ops.exp(second) + ops.exp(second))


def names(*pipeline: Step, precision: Precision = "fp32", **changes: Any) -> list[str]:
    return [step.__name__ for step in passes_for(pipeline, precision, **changes)]


def test_the_passes_run_in_the_order_of_the_pipeline() -> None:
    seen: list[str] = []
    pipeline = find_engine("openvino").passes

    optimise(two_maps(), passes_for(pipeline), lambda name, _: seen.append(name))

    usual = [step for step in pipeline if not step.optional]
    assert seen == [step.name for step in usual if "fp32" in step.precisions]
    assert names() == []


def test_an_optional_pass_runs_where_it_is_asked_for() -> None:
    steps = (*COMMON, Step(tile_sums, optional=True))

    assert "tile_sums" not in names(*steps)
    assert names(*steps, also=["tile_sums"])[-1] == "tile_sums"


def test_a_pass_can_be_switched_off_and_asked_for() -> None:
    pipeline = find_engine("openvino").passes

    off = names(*pipeline, without=["merge_duplicates", "linear_to_pointwise"])
    more = names(*pipeline, also=["merge_projections"])

    assert not {"merge_duplicates", "linear_to_pointwise"} & set(off)
    assert [name for name in more if name not in names(*pipeline)] == ["merge_projections"]
    assert more[more.index("merge_projections") - 1] == "fuse_linear_activation"
    assert names(*COMMON, without=list(PASSES)) == []


def test_without_all_the_engine_keeps_what_it_needs() -> None:
    pipeline = find_engine("openvino").passes

    assert names(*pipeline, without=["all"]) == ["decompose_axial_rope", "decompose_layer_norm_2d"]
    assert names(*pipeline, without=["all"], also=["drop_unused"])[0] == "drop_unused"
    with pytest.raises(OptionError) as caught:
        passes_for(pipeline, without=["decompose_axial_rope"])
    assert str(caught.value) == (
        "this engine cannot compile without the pass `decompose_axial_rope`"
    )


def test_a_pass_runs_in_the_precisions_it_is_for() -> None:
    pipeline = find_engine("openvino").passes

    fp32, bf16 = names(*pipeline), names(*pipeline, precision="bf16")

    assert set(fp32) - set(bf16) == {"linear_to_pointwise"}
    assert set(bf16) - set(fp32) == {"products_in_bf16"}


@pytest.mark.parametrize("field", ["without", "also"])
def test_an_unknown_pass_is_refused_by_name(field: str) -> None:
    with pytest.raises(OptionError, match="there is no pass `fuse_everything`"):
        passes_for(COMMON, "fp32", **{field: ["fuse_everything"]})


@pytest.mark.parametrize("engine", ENGINES)
def test_every_pass_says_what_it_does(engine: str) -> None:
    for step in find_engine(engine).passes:
        assert step.summary.endswith("."), step.name
        assert not step.summary.startswith(step.name)
        text = sys.modules[step.run.__module__].__doc__ or ""
        assert text.startswith(f"{step.name}: ")
        assert "=>" in text, f"{step.name} has no picture of before and after"


def test_the_watcher_sees_the_graph_after_each_pass() -> None:
    counts: dict[str, int] = {}

    optimise(two_maps(), passes_for(COMMON), lambda name, g: counts.update({name: len(g)}))

    assert counts["drop_unused"] == 6
    assert counts["merge_duplicates"] == 5
    assert counts["fuse_linear_activation"] == 4


def test_a_profile_switches_passes_off_in_a_session() -> None:
    options = CompileOptions(profile=Profile("mine", without=("merge_duplicates",)), cache=False)

    after = Session("cpu", options).optimise(two_maps())

    assert [node.op for node in after].count("exp") == 2
    plain = Session("cpu", CompileOptions(profile="plain", cache=False)).optimise(two_maps())
    assert plain == two_maps()
    assert set(PROFILES) >= {"fused", "split", "plain"}


def test_a_mark_goes_when_its_value_is_no_longer_computed() -> None:
    """As a list of cells a value is another one, even where something stands for it."""
    builder = Builder("marked")
    x, w = builder.input("x", "f32[N,1,4,4]"), builder.param("w", "f32[2,1,3,3]")
    large = builder.mark("large", ops.resize(x, (8, 8), how="bilinear"))
    small = builder.mark("small", ops.conv2d(large, w, stride=(2, 2), padding=(1, 1)))
    graph = builder.finish(y=ops.exp(small))

    after = optimise(graph, [PASSES["pixels_to_channels"]])

    assert [name for name, _ in after.marks] == ["small"]
    assert [name for name, _ in optimise(graph, [PASSES["drop_unused"]]).marks] == [
        "large",
        "small",
    ]


def test_a_broken_pass_is_named() -> None:
    def forget_the_first(graph: Graph) -> Graph:
        return replace(graph, nodes=graph.nodes[1:])

    with pytest.raises(GraphError) as caught:
        optimise(two_maps(), [PASSES["drop_unused"], forget_the_first])

    assert str(caught.value).startswith(
        "after pass `forget_the_first`: %0 is used before it is defined, in: %1"
    )


def test_a_pass_that_breaks_a_type_rule_is_named() -> None:
    def transpose_weights(graph: Graph) -> Graph:
        rewriter = Rewriter(graph)
        rewriter.emit("matmul", graph.inputs[0], graph.inputs[0])
        return rewriter.finish()

    with pytest.raises(GraphError, match="after pass `transpose_weights`: `matmul`"):
        optimise(two_maps(), [transpose_weights])


def test_a_pass_that_fails_is_named() -> None:
    def stumble(graph: Graph) -> Graph:
        nothing: dict[str, Graph] = {}
        return nothing[graph.name]

    with pytest.raises(KeyError) as caught:
        optimise(two_maps(), [stumble])

    assert caught.value.__notes__ == ["  in pass `stumble`"]


def test_a_result_that_nobody_reads_does_not_confuse_a_pass() -> None:
    builder = Builder()
    q, m = builder.input("q", "f32[M,8]"), builder.input("m", "f32[M,4]")
    value = ops.linear(m, builder.param("wv", "f32[8,4]"))
    ops.relu(
        ops.linear(ops.attention(q, q, value, heads=1, scale=1.0), builder.param("w", "f32[8,8]"))
    )
    ops.attention(q, q, value, heads=1, scale=1.0)
    graph = builder.finish(y=q)

    for step in EVERY_PASS.values():
        optimise(graph, [step])
    assert len(optimise(graph, passes_for(COMMON))) == 0


def test_a_pass_that_lies_about_a_type_is_named() -> None:
    def widen(graph: Graph) -> Graph:
        node = graph.nodes[0]
        wide = replace(node, result=Value("0", TensorType((8, 8))))
        return replace(graph, nodes=(wide, *graph.nodes[1:]))

    with pytest.raises(GraphError, match="after pass `widen`: the type rule of `linear` gives"):
        optimise(two_maps(), [widen])


def test_names_of_the_rewriter_cannot_meet_names_of_a_graph() -> None:
    builder = Builder()
    x = builder.input("new.1", "f32[2,4]")
    y = ops.relu(ops.linear(x, builder.param("new.2", "f32[4,4]")))
    graph = builder.finish(y=y + x)

    after = optimise(graph, passes_for(COMMON))

    assert [value.name for value in after.nodes[0].inputs] == ["new.1", "new.2"]


def test_folded_params_do_not_take_a_name_that_is_there() -> None:
    builder = Builder()
    x = builder.input("x", "f32[2]")
    first, second = builder.param("folded.0", "f32[2]"), builder.param("w", "f32[2]")
    graph = builder.finish(y=x * first + ops.sin(second))

    after = fold_params(graph)
    weights = after.bind({"folded.0": np.ones(2, np.float32), "w": np.zeros(2, np.float32)})

    assert [value.name for value in after.graph.params] == ["folded.0", "folded.1"]
    np.testing.assert_array_equal(weights["folded.0"], 1)
    np.testing.assert_array_equal(weights["folded.1"], 0)

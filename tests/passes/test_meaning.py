"""A pass never changes meaning: the reference gives the same numbers before and after.

Passes that only move or drop nodes must agree bit for bit; those that rearrange sums, in float64,
to `ALGEBRAIC_PASS` of the largest value.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from samgraph.engines import find_engine
from samgraph.engines.decompositions import decompose
from samgraph.graph import Graph
from samgraph.graph.evaluation import evaluate_graph
from samgraph.graph.types import Array
from samgraph.passes import PASSES, PIPELINES, fold_params, optimise, passes_for
from samgraph.passes.specialise import specialise
from tests.graph.random_graphs import arrays_for, graphs
from tests.tolerances import ALGEBRAIC_PASS

ALGEBRAIC = {
    "fuse_attention",
    "absorb_value_projection",
    "merge_projections",
    "merge_linears",
    "pointwise_to_linear",
    "absorb_scale",
    "project_sums",
    "pixels_to_channels",
    "absorb_key_projection",
    "absorb_query_projection",
    "conv_transpose_to_linear",
    "sink_expand",
}
SIZES = ({"B": 2, "M": 5}, {"B": 1, "M": 1})


def difference(before: Mapping[str, Array], after: Mapping[str, Array]) -> float:
    """The largest difference, as a part of the largest value; infinite where types differ."""
    if before.keys() != after.keys():
        return np.inf
    worst = 0.0
    for name, want in before.items():
        got = after[name]
        if got.shape != want.shape or got.dtype != want.dtype:
            return np.inf
        scale = max(float(np.abs(want).max(initial=0)), 1e-30)
        worst = max(worst, float(np.abs(got - want).max(initial=0)) / scale)
    return worst


def meaning(
    graph: Graph,
    weights: Mapping[str, Array],
    inputs: Mapping[str, Array],
    sizes: Mapping[str, int],
) -> dict[str, Array]:
    """What the reference makes of a graph."""
    return evaluate_graph(graph, {**weights, **inputs}, sizes)


def change(graph: Graph, after: Graph, weights: Mapping[str, Array]) -> float:
    """How much a graph and what a pass made of it differ, over several lengths.

    `weights` are those of `after`; `graph` gets the ones `weights_of` gives. The values that a pass
    leaves marked are compared as well.
    """
    worst = 0.0
    names = {name for name, _ in after.marks}
    graph, after = (_watched(each, names) for each in (graph, after))
    for sizes in SIZES:
        inputs, _ = arrays_for(graph, sizes)
        first = meaning(graph, weights_of(graph), inputs, sizes)
        worst = max(worst, difference(first, meaning(after, weights, inputs, sizes)))
    return worst


def _watched(graph: Graph, names: Collection[str]) -> Graph:
    """The graph with some marked values as outputs."""
    marked = tuple((name, value) for name, value in graph.marks if name in names)
    return replace(graph, outputs=(*graph.outputs, *marked), marks=())


def weights_of(graph: Graph) -> dict[str, Array]:
    """The same random weights, by their places, for each graph."""
    return arrays_for(graph, SIZES[0])[1]


@pytest.mark.parametrize("step", sorted(PASSES))
def test_a_pass_keeps_the_meaning(step: str) -> None:
    changed = []

    @settings(max_examples=60)
    @given(graphs(dtype="f64", step=step))
    def check(graph: Graph) -> None:
        after = optimise(graph, [PASSES[step]])

        limit = ALGEBRAIC_PASS if step in ALGEBRAIC else 0.0
        assert change(graph, after, weights_of(graph)) <= limit
        changed.append(after != graph)

    check()
    assert sum(changed) >= 3, f"`{step}` had something to do in {sum(changed)} graphs only"


@pytest.mark.parametrize("engine", sorted(PIPELINES))
@settings(max_examples=30)
@given(graph=graphs(dtype="f64", steps=9))
def test_a_pipeline_keeps_the_meaning(engine: str, graph: Graph) -> None:
    after = optimise(graph, passes_for(engine))

    assert change(graph, after, weights_of(graph)) <= ALGEBRAIC_PASS


@settings(max_examples=60)
@given(graph=graphs(dtype="f64", steps=9), order=st.permutations(sorted(PASSES)))
def test_passes_keep_the_meaning_in_any_order(graph: Graph, order: Sequence[str]) -> None:
    after = optimise(graph, [PASSES[name] for name in order])

    assert change(graph, after, weights_of(graph)) <= ALGEBRAIC_PASS


@settings(max_examples=60)
@given(graph=graphs(dtype="f64", steps=9))
def test_folding_params_keeps_the_meaning(graph: Graph) -> None:
    optimised = optimise(graph, passes_for("torch"))

    folded, weights = fold_params(optimised, weights_of(graph))
    again, more = fold_params(folded, weights)

    assert set(weights) == {value.name for value in folded.params}
    assert change(graph, folded, weights) <= ALGEBRAIC_PASS
    assert again == folded
    assert set(more) == set(weights)


@settings(max_examples=40)
@given(graph=graphs(dtype="f64", steps=6))
def test_what_an_engine_lacks_is_replaced_by_its_equal(graph: Graph) -> None:
    lacks = find_engine("openvino").lacks

    assert change(graph, decompose(graph, lacks), weights_of(graph)) <= ALGEBRAIC_PASS


@settings(max_examples=40)
@given(graph=graphs(dtype="f64"))
def test_specialising_keeps_the_meaning(graph: Graph) -> None:
    sizes = SIZES[0]

    special = specialise(graph, sizes)

    inputs, weights = arrays_for(graph, sizes)
    before = meaning(graph, weights, inputs, sizes)
    assert difference(before, meaning(special, weights, inputs, {})) == 0
    assert special.symbols == ()

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
from samgraph.graph import Graph
from samgraph.graph.evaluation import evaluate_graph
from samgraph.graph.types import Array
from samgraph.graph.verifier import verify
from samgraph.passes import PASSES, fold_params, optimise, passes_for
from samgraph.passes.pipeline import PRECISIONS, Precision
from samgraph.passes.specialise import specialise
from tests.engines.present import ENGINES
from tests.graph.random_graphs import FOR_PASS, arrays_for, graphs
from tests.graph.random_images import image_graphs
from tests.passes.every_pass import EVERY_PASS, OWN_PASSES
from tests.tolerances import ALGEBRAIC_PASS

ALGEBRAIC = {
    "absorb_key_rotation",
    "fuse_attention",
    "absorb_value_projection",
    "merge_projections",
    "merge_linears",
    "fold_batch_norm",
    "merge_depthwise",
    "pointwise_to_linear",
    "absorb_scale",
    "project_sums",
    "pixels_to_channels",
    "absorb_key_projection",
    "absorb_query_projection",
    "conv_transpose_to_linear",
    "sink_expand",
    "decompose_axial_rope",
    "decompose_layer_norm_2d",
    "resize_to_matmul",
    "absorb_norm_weights",
    "convolve_narrow_norms",
    "linear_to_pointwise",
    "maps_to_tokens",
}
ROUNDING = {"products_in_bf16"}  # of float32 only; see tests/engines/openvino/test_products_in_bf16
FOR_IMAGES = OWN_PASSES.keys() - FOR_PASS.keys()
FOR_IMAGES |= {"decompose_axial_rope", "decompose_layer_norm_2d"}
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

    `weights` are those of `after`; `graph` gets those that `weights_of` gives. The values that a
    pass leaves marked are compared as well.
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
    """The same random weights, by position, for each graph."""
    return arrays_for(graph, SIZES[0])[1]


@pytest.mark.parametrize("step", sorted(EVERY_PASS.keys() - ROUNDING))
def test_a_pass_keeps_the_meaning(step: str) -> None:
    changed = []

    @settings(max_examples=60)
    @given(image_graphs() if step in FOR_IMAGES else graphs(dtype="f64", step=step))
    def check(graph: Graph) -> None:
        after = optimise(graph, [EVERY_PASS[step]])

        limit = ALGEBRAIC_PASS if step in ALGEBRAIC else 0.0
        assert change(graph, after, weights_of(graph)) <= limit
        changed.append(after != graph)

    check()
    assert sum(changed) >= 3, f"`{step}` had something to do in {sum(changed)} graphs only"


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("engine", ENGINES)
@settings(max_examples=30)
@given(graph=graphs(dtype="f64", steps=9) | image_graphs())
def test_a_pipeline_keeps_the_meaning(engine: str, precision: Precision, graph: Graph) -> None:
    after = optimise(graph, passes_for(find_engine(engine).passes, precision))

    assert change(graph, after, weights_of(graph)) <= ALGEBRAIC_PASS
    assert {node.op for node in after} <= find_engine(engine).ops


@settings(max_examples=60)
@given(graph=graphs(dtype="f64", steps=9), order=st.permutations(sorted(PASSES)))
def test_passes_keep_the_meaning_in_any_order(graph: Graph, order: Sequence[str]) -> None:
    after = optimise(graph, [PASSES[name] for name in order])

    assert change(graph, after, weights_of(graph)) <= ALGEBRAIC_PASS


@settings(max_examples=40)
@given(graph=image_graphs(), order=st.permutations(sorted(EVERY_PASS)))
def test_passes_of_engines_do_so_too(graph: Graph, order: Sequence[str]) -> None:
    after = optimise(graph, [EVERY_PASS[name] for name in order])

    assert change(graph, after, weights_of(graph)) <= ALGEBRAIC_PASS


@settings(max_examples=60)
@given(graph=graphs(dtype="f64", steps=9) | image_graphs())
def test_folding_params_keeps_the_meaning(graph: Graph) -> None:
    optimised = optimise(graph, list(PASSES.values()))

    folded = fold_params(optimised)
    weights = folded.bind(weights_of(graph))
    again = fold_params(folded.graph)

    verify(folded.graph)
    assert set(weights) == {value.name for value in folded.graph.params}
    assert change(graph, folded.graph, weights) <= ALGEBRAIC_PASS
    assert (again.graph, again.weights) == (folded.graph, None)
    assert set(again.bind(weights)) == set(weights)


@settings(max_examples=40)
@given(graph=graphs(dtype="f64"))
def test_specialising_keeps_the_meaning(graph: Graph) -> None:
    sizes = SIZES[0]

    special = specialise(graph, sizes)

    inputs, weights = arrays_for(graph, sizes)
    before = meaning(graph, weights, inputs, sizes)
    assert difference(before, meaning(special, weights, inputs, {})) == 0
    assert special.symbols == ()

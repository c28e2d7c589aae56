"""The fused graphs of the engine keep the meaning of the sister models' graphs too."""

from collections import Counter
from typing import Any

import numpy as np
import pytest

from samgraph.models.loading import find_config
from samgraph.models.sam2.model import Sam2Model
from tests.graph.random_graphs import arrays_for
from tests.models.sisters import SISTERS, small_sister, small_weights
from tests.tolerances import FUSED_GRAPH

torch = pytest.importorskip("torch")

LENGTHS = {"N": 2, "B": 2, "P": 6, "F": 3, "Q": 5, "R": 9}
# What is not SAM 2's own: trunks, and what stores and attends to memory.
OWN = ("image_encoder", "memory_encoder", "attend_bank", "attend_bank_pooled")


@pytest.mark.parametrize("approximation", [None, "pooled-memory"])
@pytest.mark.parametrize("name", SISTERS)
def test_fused_graphs_mean_the_same(name: str, approximation: str | None) -> None:
    from samgraph.engines.torch import evaluate
    from tests.engines.torch.test_fused import _run, fused

    model: Any = small_sister(name, approximation=approximation).core
    assert isinstance(model, Sam2Model)
    weights, own = small_weights(SISTERS[name]), OWN[-2:] if approximation else OWN
    for graph in (model.graph(which) for which in own if which in model.graph_set.names):
        sizes = {symbol: LENGTHS[symbol] for symbol in graph.symbols}
        inputs, _ = arrays_for(graph, sizes)
        for key, most in (("frames", 6), ("slots", 7), ("pointers", 9)):
            if key in inputs and inputs[key].dtype == np.int64:
                inputs[key] = np.abs(inputs[key]) % most
        known = {value.name: weights[value.name] for value in graph.params}
        folded = fused(graph)

        before = _run(evaluate, graph, {**known, **inputs})
        after = _run(evaluate, folded.graph, {**folded.bind(known), **inputs})

        for key, wanted in before.items():
            scale = max(1.0, float(wanted.abs().max()))
            worst = float((after[key] - wanted).abs().max())
            assert worst <= FUSED_GRAPH * scale, (graph.name, key)


@pytest.mark.parametrize(
    ("name", "graph", "approximation", "left"),
    [
        ("small edgetam", "attend_bank", None, 0),
        ("small edgetam", "attend_bank", "pooled-memory", 4),
        ("small efficienttam", "attend_bank", None, 0),
        ("small efficienttam", "attend_bank", "pooled-memory", 4),
        ("small efficienttam 1", "attend_bank_pooled", None, 4),
    ],
)
def test_rotations_that_are_fused(
    name: str, graph: str, approximation: str | None, left: int
) -> None:
    """Left are queries and keys of cross-attention to pooled keys, in each of two layers."""
    from tests.engines.torch.test_fused import fused

    model: Any = small_sister(name, approximation=approximation).core

    found = Counter(node.op for node in fused(model.graph(graph)).graph)

    assert found["axial_rope"] == left


def test_the_families_are_those_of_the_registry() -> None:
    assert {find_config(config)[0].name for config in SISTERS.values()} == {
        "edgetam",
        "efficienttam",
        "nano",
    }

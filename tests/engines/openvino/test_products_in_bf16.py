"""products_in_bf16 by the reference: rounded as bf16 rounds, and no more; faults are seen."""

import numpy as np
import pytest

from samgraph.engines.openvino.passes.products_in_bf16 import products_in_bf16
from samgraph.graph import Array, Graph
from samgraph.graph.dims import evaluate
from samgraph.graph.evaluation import evaluate_graph
from samgraph.passes.fold_params import fold_params
from samgraph.passes.rewriter import rewrite
from tests.passes.openvino_cases import products_in_bf16_that_are_large
from tests.tolerances import OP_BF16

OUTPUTS = ("attention", "convolution", "layer", "product")


def arrays(graph: Graph) -> dict[str, Array]:
    rng = np.random.default_rng(0)
    found = {}
    for value in (*graph.inputs, *graph.params):
        shape = [evaluate(dim, {"B": 2}) for dim in value.type.shape]
        small = 8 if value.name in ("weight", "kernel") else 1
        found[value.name] = rng.standard_normal(shape, np.float32) / np.float32(small)
    return found


def errors(after: Graph) -> dict[str, float]:
    """Relative errors of the rewritten graph's outputs, in the 2-norm."""
    before = products_in_bf16_that_are_large()
    given = arrays(before)
    want, got = (evaluate_graph(graph, given, {"B": 2}) for graph in (before, after))
    return {
        name: float(np.linalg.norm(got[name] - want[name]) / np.linalg.norm(want[name]))
        for name in want
    }


def test_only_products_are_rounded() -> None:
    after = products_in_bf16(products_in_bf16_that_are_large())
    found = errors(after)

    assert sorted(found) == list(OUTPUTS)
    assert all(1e-4 < error < OP_BF16[0] for error in found.values()), found
    halves = {node.op for node in after if node.result.type.dtype == "bf16"}
    assert halves == {"attention", "cast", "conv2d", "linear", "matmul"}


def test_weights_are_cast_once() -> None:
    folded = fold_params(products_in_bf16(products_in_bf16_that_are_large()))

    kept = {value.name for value in folded.graph.params if value.type.dtype == "bf16"}
    assert len(kept) == 2  # the weights of the layer and of the convolution
    read = [v for node in folded.graph if node.op == "cast" for v in node.inputs]
    assert not set(read) & set(folded.graph.params)


@pytest.mark.parametrize(
    ("output", "op"), [("layer", "add"), ("layer", "gelu"), ("attention", "mul")]
)
def test_what_is_forgotten_is_seen(output: str, op: str) -> None:
    """A bias, an activation, the scale of attention."""
    after = products_in_bf16(products_in_bf16_that_are_large())
    found = {node.result.name for node in after if node.op == op}

    spoilt = rewrite(after, found, lambda rewriter, node: rewriter.new(node.inputs[0]))

    assert errors(spoilt)[output] > OP_BF16[0]

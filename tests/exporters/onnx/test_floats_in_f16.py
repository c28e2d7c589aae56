"""floats_in_f16 by the reference: rounded as f16 rounds, islands whole, nothing out of range."""

import numpy as np
import pytest
from hypothesis import given, settings

from samgraph import ops
from samgraph.graph import Builder, Graph
from samgraph.graph.evaluation import evaluate_graph
from samgraph.graph.verifier import verify
from samgraph.passes import fold_params
from tests import tolerances
from tests.graph.random_graphs import arrays_for, graphs
from tests.passes.test_meaning import SIZES, difference

pytest.importorskip("onnx")
module = pytest.importorskip("samgraph.exporters.onnx.passes.floats_in_f16")
floats_in_f16 = module.floats_in_f16


def mixed() -> Graph:
    builder = Builder("mixed")
    x, w = builder.input("x", "f32[N,8]"), builder.param("w", "f32[8,8]")
    y = ops.sin(ops.linear(x, w))
    with builder.exact():
        z = ops.relu(y)
    return builder.finish(y=ops.relu(y), z=z)


def hardened() -> Graph:
    """Logits times a slope beyond any float of 16 bits, as the memory encoder has them."""
    builder = Builder("hardened")
    x = builder.input("x", "f32[1,1,4,4]")
    large = ops.resize(x * 2.0**80 + -1e3, (8, 8), how="bilinear")
    return builder.finish(y=ops.sigmoid(large) * 20.0 + -10.0)


AFTER = """
graph mixed(
  %x: f32[N,8],
  param %w: f32[8,8],
) {
  %0: f16[N,8] = cast(%x, dtype="f16")
  %1: f16[8,8] = cast(%w, dtype="f16")
  %2: f16[N,8] = linear(%0, %1)
  %3: f32[N,8] = cast(%2, dtype="f32")
  %4: f32[N,8] = sin(%3)
  %5: f32[N,8] = exact relu(%4)
  %6: f16[N,8] = cast(%4, dtype="f16")
  %7: f16[N,8] = relu(%6)
  %8: f32[N,8] = cast(%7, dtype="f32")
  return y=%8, z=%5
}
"""


def test_the_graph_after_it() -> None:
    assert str(floats_in_f16(mixed())).strip() == AFTER.strip()


@settings(max_examples=60)
@given(graphs(dtype="f32", steps=9))
def test_it_keeps_the_meaning_up_to_rounding(graph: Graph) -> None:
    after = floats_in_f16(graph)
    verify(after)

    assert after.inputs == graph.inputs
    for sizes in SIZES:
        inputs, weights = arrays_for(graph, sizes)
        with np.errstate(over="ignore", invalid="ignore"):
            before = evaluate_graph(graph, {**weights, **inputs}, sizes)
            found = evaluate_graph(after, {**weights, **inputs}, sizes)
        assert difference(before, found) <= tolerances.EXPORTED_FP16


def test_numbers_beyond_f16_stay_in_float32_up_to_what_bounds_them() -> None:
    after = floats_in_f16(hardened())

    dtypes = {node.op: node.result.type.dtype for node in after if node.op != "constant"}
    x = np.linspace(-1, 1, 16, dtype=np.float32).reshape(1, 1, 4, 4)
    before, found = (evaluate_graph(g, {"x": x}, {})["y"] for g in (hardened(), after))

    assert dtypes["resize"] == dtypes["sigmoid"] == "f32"
    assert np.allclose(before, found, atol=0.02)


def test_without_that_rule_masks_for_memory_are_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_beyond", lambda graph: frozenset())
    x = np.linspace(-1, 1, 16, dtype=np.float32).reshape(1, 1, 4, 4)

    with np.errstate(all="ignore"):
        found = evaluate_graph(floats_in_f16(hardened()), {"x": x}, {})["y"]

    assert np.isnan(found).any()


def test_weights_are_rounded_once_after_what_is_computed_of_them() -> None:
    builder = Builder("folded")
    x, w = builder.input("x", "f32[N,4]"), builder.param("w", "f32[4,4]")
    graph = builder.finish(y=ops.linear(x, w * 3.0 + 1.0))

    folded = fold_params(floats_in_f16(graph))

    (weight,) = folded.graph.params
    arrays = folded.bind({"w": np.eye(4, dtype=np.float32)})
    assert weight.type.dtype == "f16"
    assert np.array_equal(arrays[weight.name], 3 * np.eye(4) + 1)

"""Graphs of the model in stages: like the graph in one piece, and open to inspection."""

import numpy as np
import pytest

from samgraph.graph import Array
from samgraph.models.sam2 import graphs
from samgraph.models.sam2.model import Sam2Model
from samgraph.passes.cut import cut
from samgraph.runtime import CompileOptions, SplitGraph
from tests import tolerances
from tests.models.sam2.bench import Bench, known_weights
from tests.models.sam2.test_graphs import LIMITS, SEED, TEST, assert_close, decode_inputs
from tests.models.sam2.wiring import attention_inputs

WEIGHTS = known_weights(TEST, SEED)


@pytest.fixture(scope="module")
def split() -> Sam2Model:
    options = CompileOptions(engine="openvino", cache=False, profile="split")
    return Sam2Model(TEST, WEIGHTS, device="cpu", options=options)


@pytest.fixture(scope="module")
def whole() -> Bench:
    return Bench(TEST, WEIGHTS, "openvino")


def image() -> Array:
    size = TEST.image_size
    return np.random.default_rng(2).standard_normal((1, 3, size, size), np.float32)


def test_the_image_encoder_in_stages(split: Sam2Model, whole: Bench) -> None:
    found = split.run("image_encoder", image=image())

    wanted = whole.graph("image_encoder", image=image())
    assert_close(found, wanted, dict.fromkeys(wanted, tolerances.ENCODER))


def test_the_decoder_in_stages(split: Sam2Model, whole: Bench) -> None:
    inputs = decode_inputs(TEST, 2, 3)

    assert_close(split.run("decode", **inputs), whole.graph("decode", **inputs))


def test_the_decoder_without_any_pass(whole: Bench) -> None:
    """An engine runs what the model says as it is: transposed convolutions, wide attention."""
    inputs = decode_inputs(TEST, 2, 3)

    found = Bench(TEST, WEIGHTS, "openvino", "plain").graph("decode", **inputs)

    assert_close(found, whole.graph("decode", **inputs))


def test_clicks_on_a_prepared_image_in_stages(split: Sam2Model, whole: Bench) -> None:
    inputs = decode_inputs(TEST, 2, 3)
    features = {name: inputs[name][:1] for name in TEST.feature_maps}
    prompt = {name: inputs[name] for name in ("points", "labels")}

    found = split.run("decode_prepared", **split.run("prepare_image", **features), **prompt)

    prepared = whole.graph("prepare_image", **features)
    wanted = whole.graph("decode_prepared", **prepared, **prompt)
    assert_close(found, wanted, {name: LIMITS[name] for name in wanted})


def test_every_value_between_stages_has_a_name_of_its_own(split: Sam2Model, whole: Bench) -> None:
    inputs = attention_inputs(TEST, 2, 3, 2)
    compiled = split.compiled("memory_attention")
    assert isinstance(compiled, SplitGraph)

    kept = compiled.run(inputs, keep=True)

    layers = [f"memory_attention.layers.{i}." for i in range(TEST.memory_layers)]
    attention = [f"{kind}.{name}" for kind in ("self_attn", "cross_attn_image")
                 for name in ("q", "k", "v", "q_rotated", "k_rotated")]  # fmt: skip
    ends = [*attention, "after_self_attn", "after_cross_attn", "output"]
    between = {f"{layer}{end}" for layer in layers for end in ends}
    between |= {f"memory_attention.{name}" for name in ("input", "memory", "memory_position")}
    assert kept.keys() == between | {"embedding"}
    wanted = whole.graph("memory_attention", **inputs)
    assert_close(kept, wanted, {"embedding": tolerances.MEMORY_ATTENTION})
    frames = inputs["memory"].reshape(2, -1, TEST.memory_channels)
    np.testing.assert_array_equal(kept["memory_attention.memory"][:, : frames.shape[1]], frames)


def test_rotating_changes_no_length(split: Sam2Model) -> None:
    """What is between is what its name says: pairs of channels are rotated, pointers are not."""
    inputs = attention_inputs(TEST, 1, 2, 1)
    compiled = split.compiled("memory_attention")
    assert isinstance(compiled, SplitGraph)

    kept = compiled.run(inputs, keep=True)

    at = "memory_attention.layers.0.cross_attn_image."
    before, after = kept[f"{at}k"], kept[f"{at}k_rotated"]
    pairs = [np.hypot(x[..., ::2], x[..., 1::2]) for x in (before, after)]
    np.testing.assert_allclose(pairs[0], pairs[1], rtol=1e-4, atol=1e-4)
    rotated = 2 * TEST.grid**2
    np.testing.assert_array_equal(before[:, rotated:], after[:, rotated:])
    assert np.abs(before - after)[:, 1:rotated].max() > 0.1


@pytest.mark.parametrize("name", graphs.TRACES)
def test_every_graph_can_be_cut(name: str) -> None:
    graph = graphs.TRACES[name](TEST)

    stages = cut(graph)

    assert {value.name for stage in stages for value in stage.params} <= {
        value.name for value in graph.params
    }
    assert dict(stages[-1].outputs).keys() >= dict(graph.outputs).keys()

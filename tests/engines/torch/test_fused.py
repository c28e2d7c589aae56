"""The fused graphs of the engine: every pass finds its pattern in SAM 2 and keeps the meaning."""

from collections import Counter
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from samgraph.errors import GraphError
from samgraph.graph import Graph
from samgraph.graph.registry import infer
from samgraph.graph.types import parse_type
from samgraph.models.sam2.config import CONFIGS, Sam2Config
from samgraph.models.sam2.graphs import TRACES, TRACKING_TRACES, trace_graphs
from samgraph.passes import fold_params, optimise, passes_for
from tests.graph.random_graphs import arrays_for
from tests.models.sam2.bench import config_of
from tests.tolerances import FUSED_GRAPH

torch = pytest.importorskip("torch")

ON_THE_HOST = {"prepare_frame", "attend_prepared", "attend_prepared_fp32"}  # not run on a GPU
NAMES = tuple(name for name in (*TRACES, *TRACKING_TRACES) if name not in ON_THE_HOST)
# How often each fused op occurs, by graph: of tiny, and of large where it differs.
EXPECTED: dict[str, dict[str, int]] = {
    "image_encoder": {
        "patch_embedding": 1, "window_attention": 9, "attention": 3, "fused_mlp": 1,
        "fused_linear": 53, "offset_norm": 21,
    },
    "decode": {
        "conv_norm": 2, "attention": 5, "image_to_tokens": 2, "grouped_linear": 3,
        "upscale_masks": 1, "fused_linear": 20, "offset_norm": 6,
    },
    "decode_tracked": {
        "conv_norm": 0, "attention": 5, "image_to_tokens": 2, "grouped_linear": 3,
        "upscale_masks": 1, "fused_linear": 16, "offset_norm": 6,
    },
    "decode_alternatives": {
        "conv_norm": 0, "attention": 5, "image_to_tokens": 2, "grouped_linear": 3,
        "upscale_masks": 1, "fused_linear": 16, "offset_norm": 6,
    },
    "decode_prepared": {
        "attention": 5, "image_to_tokens": 1, "grouped_linear": 3, "upscale_masks": 1,
        "fused_linear": 16, "offset_norm": 6,
    },
    "memory_encoder": {"enlarge_mask": 1, "conv_norm": 6, "fused_linear": 7},
    "memory_attention": {"attention": 8, "fused_mlp": 3, "fused_linear": 20, "axial_rope": 0},
    "attend_bank": {
        "bank_keys": 1, "bank_values": 1, "attention": 8, "fused_mlp": 3, "fused_linear": 20,
        "axial_rope": 0,
    },
    "attend_bank_fp32": {"bank_keys": 1, "bank_values": 1, "attention": 8},
    "prepare_image": {"fused_linear": 2},
    "mask_prompt": {"conv2d": 1},
}  # fmt: skip
LARGE = {
    "image_encoder": {
        "patch_embedding": 1, "window_attention": 45, "attention": 3, "layer_norm": 0,
        "linear": 0,
    }
}  # fmt: skip


def fused(graph: Graph, precision: Any = "bf16") -> Any:
    from samgraph.engines import Device
    from samgraph.engines.torch.engine import TorchEngine

    engine = TorchEngine(Device("cpu"), fuses=True)
    return fold_params(optimise(graph, passes_for(engine.passes, precision)))


@cache
def traced(config: Sam2Config) -> dict[str, Graph]:
    return trace_graphs(config, NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_every_pass_finds_its_pattern_in_tiny(name: str) -> None:
    count = Counter(node.op for node in fused(traced(CONFIGS["sam2.1-tiny"])[name]).graph)

    assert {op: count[op] for op in EXPECTED[name]} == EXPECTED[name]


@pytest.mark.parametrize("name", LARGE)
def test_every_pass_finds_its_pattern_in_large(name: str) -> None:
    graph = trace_graphs(CONFIGS["sam2.1-large"], [name])[name]
    count = Counter(node.op for node in fused(graph).graph)

    assert {op: count[op] for op in LARGE[name]} == LARGE[name]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("objects", [1, 3])
def test_fused_graphs_mean_the_same(name: str, objects: int) -> None:
    from samgraph.engines.torch import evaluate

    config = replace(config_of({"config": "test"}), image_size=128)
    graph = traced(config)[name]
    lengths = {"N": objects, "B": objects, "P": 2, "F": 3, "Q": 5, "R": 9}
    if name.startswith("attend_bank"):
        lengths["P"] = 6  # pages
    sizes = {symbol: lengths[symbol] for symbol in graph.symbols}
    inputs, weights = arrays_for(graph, sizes)
    for key, most in (("labels", 2), ("frames", 6), ("slots", 7), ("pointers", 9)):
        if key in inputs and inputs[key].dtype == np.int64:
            inputs[key] = np.abs(inputs[key]) % most
    folded = fused(graph)

    before = _run(evaluate, graph, {**weights, **inputs})
    after = _run(evaluate, folded.graph, {**folded.bind(weights), **inputs})

    assert after.keys() == before.keys()
    for key, wanted in before.items():
        scale = max(1.0, float(wanted.abs().max()))
        assert float((after[key] - wanted).abs().max()) <= FUSED_GRAPH * scale, key


def _run(evaluate: Any, graph: Graph, arrays: dict[str, Any]) -> dict[str, Any]:
    from samgraph.engines.torch.tensors import to_tensor

    device = torch.device("cpu")
    wanted = [value.name for value in (*graph.inputs, *graph.params)]
    found = evaluate(graph, {name: to_tensor(arrays[name], device) for name in wanted})
    return {name: tensor.double() for name, tensor in found.items()}


def _without(index: int) -> Any:
    """A rule that gets zeros for one of its inputs."""

    def plant(rule: Any) -> Any:
        def faulty(*tensors: Any, **attributes: Any) -> Any:
            changed = list(tensors)
            changed[index] = torch.zeros_like(changed[index])
            return rule(*changed, **attributes)

        return faulty

    return plant


def _given(**changed: Any) -> Any:
    return lambda rule: lambda *tensors, **attributes: rule(*tensors, **{**attributes, **changed})


# Op, graph it occurs in, and what is wrong with it.
FAULTS = [
    ("fused_linear", "image_encoder", _without(2)),
    ("fused_linear", "memory_attention", _given(theta=2.0)),
    ("offset_norm", "decode", _without(1)),
    ("window_attention", "image_encoder", _given(scale=0.2)),
    ("patch_embedding", "image_encoder", _without(3)),
    ("image_to_tokens", "decode", _without(3)),
    ("upscale_masks", "decode", _without(3)),
    ("grouped_linear", "decode", _given(activation="none")),
    ("conv_norm", "memory_encoder", _without(4)),
    ("enlarge_mask", "memory_encoder", _given(shift=-9.0)),
    ("bank_keys", "attend_bank", _without(3)),
    ("bank_values", "attend_bank", _without(2)),
]


@pytest.mark.parametrize(("op", "name", "plant"), FAULTS, ids=[fault[0] for fault in FAULTS])
def test_a_fault_in_a_fused_op_is_seen(
    monkeypatch: pytest.MonkeyPatch, op: str, name: str, plant: Any
) -> None:
    from samgraph.engines.torch.fused import FUSED

    monkeypatch.setitem(FUSED, op, plant(FUSED[op]))

    with pytest.raises(AssertionError):
        test_fused_graphs_mean_the_same(name, 3)


@pytest.mark.parametrize(
    "attributes", [{"eps": "small"}, {"pool": 1}, {"grid": (2,)}, {"slope": 0.1}]
)
def test_attributes_of_a_fused_layer_are_checked(attributes: dict[str, Any]) -> None:
    import samgraph.engines.torch.ops  # noqa: F401  (registers them)

    types = tuple(parse_type(text) for text in ("f32[2,2,2,4]", "f32[3,4]", "f32[3]"))

    assert str(infer("fused_linear", types, {"eps": 1e-6, "pool": True})) == "f32[2,1,1,3]"
    with pytest.raises(GraphError, match="`fused_linear` does not take these arguments"):
        infer("fused_linear", types, attributes)

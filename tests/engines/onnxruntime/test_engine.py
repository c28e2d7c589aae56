"""ONNX Runtime as an engine: recorded numbers, whole videos, devices, empty inputs, the cache."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from samgraph import ops
from samgraph.engines import Device, EngineOptions, find_engine
from samgraph.errors import EngineError, OptionError
from samgraph.graph import Builder, Graph
from samgraph.models.family import SegmentationModel
from samgraph.models.loading import load_model
from samgraph.predict.video.video import open_video
from samgraph.runtime import CompileOptions, Session
from tests import tolerances
from tests.golden import scenes
from tests.models.sam2.bench import bench_for, config_of, known_weights
from tests.models.sam2.comparing import compare_all, recorded, wrong
from tests.models.sam2.components import run_components
from tests.predict.models import own_video

pytest.importorskip("onnxruntime")
providers = pytest.importorskip("samgraph.engines.onnxruntime.providers")
NAME = "onnxruntime"


def model(seed: int, **options: Any) -> SegmentationModel:
    config = config_of({"config": "test"})
    chosen = CompileOptions(engine=NAME, threads=2, **options)
    return load_model(known_weights(config, seed), config=config, device="cpu", options=chosen)


def halves() -> Graph:
    """A table in bf16, gathered and cast: how a memory bank is read."""
    builder = Builder("halves")
    pages = builder.input("pages", "bf16[P,4]")
    rows = builder.input("rows", "i64[N]")
    return builder.finish(y=ops.cast(ops.gather(pages, rows, 0), "f32") * 2.0)


def test_every_recorded_array_is_computed_alike() -> None:
    golden, bench = bench_for("test2", NAME)

    found = compare_all(golden, run_components(golden, bench))

    assert set(found) == recorded(golden)
    assert not wrong(found)


def test_a_tracked_video_has_the_masks_of_the_reference() -> None:
    golden = own_video("test_fp32mem")
    video = open_video(model(golden.weights_seed), scenes.frames(), memory_precision="fp32")
    video.add(frame=0, object="disc", box=(17, 27, 63, 73))

    results = list(video.track())

    assert [result.index for result in results] == list(range(10))
    for result in results:
        at = f"e01_f{result.index:05d}"
        assert golden.difference(f"{at}_low", result.low_logits) < tolerances.VIDEO_LOGITS
        assert golden.disagreement(f"{at}_bits", result.masks) < tolerances.VIDEO_PIXELS_SMALL


def test_memory_in_bfloat16_is_read_in_place() -> None:
    import ml_dtypes

    compiled = Session("cpu", CompileOptions(engine=NAME, cache=False)).compile(halves())
    pages = np.arange(12, dtype=np.float32).reshape(3, 4).astype(ml_dtypes.bfloat16)

    y = compiled.run_numpy(pages=pages, rows=np.array([2, -3, 7]))["y"]

    assert y.tolist() == [[16, 18, 20, 22], [0, 2, 4, 6], [0, 0, 0, 0]]


def test_a_compiled_graph_comes_back_from_the_cache(tmp_path: Path) -> None:
    options = CompileOptions(engine=NAME, cache_dir=tmp_path)
    x = np.linspace(-2, 2, 5, dtype=np.float32)
    builder = Builder("cached")
    graph = builder.finish(y=ops.gelu(builder.input("x", "f32[N]")), x=builder.constant(x))
    first = Session("cpu", options).compile(graph).run_numpy(x=x)

    engine: Any = find_engine(NAME)
    session = Session("cpu", options)
    broken = replace(engine, ops=frozenset())  # what compiles anew is refused
    session._choice = replace(session._choice, engine=broken)
    again = session.compile(graph).run_numpy(x=x)

    assert again.keys() == {"x", "y"}
    assert all(np.array_equal(again[name], first[name]) for name in first)


@pytest.mark.parametrize("data", [b"", b"\xff" * 40, (3).to_bytes(8, "little") + b"1\nyno model"])
def test_bytes_that_are_no_program_are_refused(data: bytes) -> None:
    with pytest.raises(EngineError):
        find_engine(NAME).restore(memoryview(data), EngineOptions())


def test_attention_of_no_queries_does_not_end_the_process() -> None:
    builder = Builder("empty")
    q, k = builder.input("q", "f32[M,6]"), builder.input("k", "f32[4,6]")
    graph = builder.finish(y=ops.attention(q, k, k, heads=3, scale=0.3))
    compiled = Session("cpu", CompileOptions(engine=NAME, cache=False)).compile(graph)

    k_array = np.ones((4, 6), np.float32)

    assert compiled.run_numpy(q=np.zeros((0, 6), np.float32), k=k_array)["y"].shape == (0, 6)
    assert compiled.run_numpy(q=np.zeros((2, 6), np.float32), k=k_array)["y"].shape == (2, 6)


def test_a_device_runs_on_its_provider_and_then_the_cpu() -> None:
    cpu: tuple[str, dict[str, str]] = ("CPUExecutionProvider", {})

    def chosen(device: Device, *names: str) -> Any:
        return providers.providers_for(device, [*names, "CPUExecutionProvider"])

    tensorrt, cuda = "TensorrtExecutionProvider", "CUDAExecutionProvider"
    found = chosen(Device("cuda", 1), tensorrt, cuda)
    assert found == [(cuda, {"device_id": "1", "use_tf32": "0"}), cpu]
    assert chosen(Device("cuda"), tensorrt) == [(tensorrt, {"device_id": "0"}), cpu]
    amd = "MIGraphXExecutionProvider"
    assert chosen(Device("cuda"), amd) == [(amd, {"device_id": "0"}), cpu]
    intel = "OpenVINOExecutionProvider"
    assert chosen(Device("gpu", 1), intel)[0][1] == {"device_type": "GPU.1", "precision": "FP32"}
    assert chosen(Device("npu"), intel)[0][1] == {"device_type": "NPU"}
    apple = "CoreMLExecutionProvider"
    for kind, units in (("mps", "GPU"), ("gpu", "GPU"), ("npu", "NeuralEngine")):
        assert chosen(Device(kind), apple)[0][1]["MLComputeUnits"] == f"CPUAnd{units}"
    assert chosen(Device("gpu"), "DmlExecutionProvider")[0][1] == {"device_id": "0"}
    assert chosen(Device("cpu")) == [cpu]


@pytest.mark.parametrize(
    ("device", "expected"),
    [
        ("cuda:1", "CUDAExecutionProvider or ROCM"),
        ("gpu", "DmlExecutionProvider or CoreML"),
        ("mps", "CoreMLExecutionProvider"),
    ],
)
def test_a_device_without_a_provider_is_refused(device: str, expected: str) -> None:
    """Whatever else this machine has: another build may run on what no other engine does."""
    with pytest.raises(EngineError, match=f"ONNX Runtime cannot use device `{device}`") as caught:
        Session(device, CompileOptions(engine=NAME, cache=False))

    text = str(caught.value)
    assert "a build with " in text
    assert "CPUExecutionProvider" in text
    assert f"expected: {expected}" in text


def test_a_kind_of_device_that_no_provider_is_for_is_refused() -> None:
    with pytest.raises(OptionError, match="engine `onnxruntime` does not run on `xpu`"):
        Session("xpu", CompileOptions(engine=NAME, cache=False))


def test_a_provider_that_does_not_start_is_an_error_and_not_the_cpu(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """ONNX Runtime itself would go on with the CPU."""
    import onnxruntime

    class OnTheCpu:
        def __init__(self, *given: Any, **named: Any) -> None:
            assert named["providers"][0][0] == "CUDAExecutionProvider"

        def get_providers(self) -> list[str]:
            return ["CPUExecutionProvider"]

    both = ["CUDAExecutionProvider", "CPUExecutionProvider"]
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: both)
    monkeypatch.setattr(onnxruntime, "InferenceSession", OnTheCpu)
    session = Session("cuda", CompileOptions(engine=NAME, cache=False))

    assert session.reason == "onnxruntime on cuda, fp32: CUDA, untested"
    with pytest.raises(EngineError, match="CUDAExecutionProvider is installed but did not start"):
        session.compile(halves())


def test_without_its_library_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("samgraph.engines.onnxruntime")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "onnxruntime", None)

    with pytest.raises(EngineError) as caught:
        find_engine(NAME)

    assert caught.value.hint == "pip install samgraph[onnx]"

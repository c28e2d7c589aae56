"""OpenVINO on a GPU or NPU, with a list of devices that are not there."""

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from samgraph import ops
from samgraph.engines import Device, EngineOptions, find_engine
from samgraph.engines.openvino import accelerators, bf16
from samgraph.errors import EngineError, SamgraphWarning
from samgraph.graph import Builder
from samgraph.runtime import CompileOptions, Session

module = importlib.import_module("samgraph.engines.openvino.engine")
PLAIN = CompileOptions(threads=1, cache=False)


class FakeCore:
    """OpenVINO with other devices, all of which are the CPU."""

    def __init__(self, real: Any, devices: Sequence[str], able: Sequence[str]) -> None:
        self._real, self.available_devices, self.able = real, ["CPU", *devices], able
        self.compiled: list[tuple[str, Any]] = []

    def get_property(self, device: str, name: str) -> Any:
        if device == "CPU":
            return self._real.get_property(device, name)
        if device == "NPU" and name == "OPTIMIZATION_CAPABILITIES":
            return [one for one in self.able if one != "FP32"]
        if name == "FULL_DEVICE_NAME":
            return f"Intel {device}"
        if name == "OPTIMIZATION_CAPABILITIES":
            return self.able
        if name == "GPU_DEVICE_TOTAL_MEM_SIZE":
            return 16_000_000_000
        raise RuntimeError(f"no property {name}")

    def compile_model(self, model: Any, device: str, hints: Any) -> Any:
        self.compiled.append((device, hints))
        if device.startswith("NPU"):
            raise RuntimeError("dynamic shapes are not supported")
        return self._real.compile_model(model, "CPU", {})


@pytest.fixture
def core(monkeypatch: pytest.MonkeyPatch) -> FakeCore:
    """Two GPUs and an NPU, which work as far as a child process can tell."""
    found = FakeCore(module._core(), ["GPU.0", "GPU.1", "NPU"], ["FP32", "FP16", "INT8"])
    monkeypatch.setattr(module, "_core", lambda: found)
    monkeypatch.setattr(accelerators, "_probe", lambda *_: True)
    for count in ("_intel_gpus", "_accelerators"):
        monkeypatch.setattr(f"samgraph.engines.devices.{count}", lambda: None)
    return found


def squares() -> Any:
    builder = Builder("squares")
    x = builder.input("x", "f32[M,4]")
    return builder.finish(y=ops.linear(x * x, builder.param("w", "f32[4,4]")))


@pytest.mark.parametrize(("name", "target"), [("gpu", "GPU.0"), ("gpu:1", "GPU.1")])
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_a_gpu_compiles_with_its_own_hints(
    core: FakeCore, name: str, target: str, precision: Any
) -> None:
    options = CompileOptions(precision=precision, cache=False)
    x, w = np.arange(8, dtype=np.float32).reshape(2, 4), np.eye(4, dtype=np.float32)

    session = Session(name, options)
    found = session.compile(squares(), {"w": w}).run_numpy(x=x)

    assert session.reason == f"openvino on {name}, {precision}: untested"
    np.testing.assert_allclose(found["y"], x * x, rtol=1e-2)
    mode = {"fp32": "ACCURACY", "fp16": "PERFORMANCE"}[precision]
    wanted = {"INFERENCE_PRECISION_HINT": f"f{precision[2:]}", "EXECUTION_MODE_HINT": mode}
    assert core.compiled == [(target, wanted)]


@pytest.mark.usefixtures("core")
def test_fp32_is_the_default_of_a_gpu_and_no_native_kernel_runs_there() -> None:
    session = Session("gpu", PLAIN)

    assert session.precision == "fp32"
    assert "absorb_key_rotation" not in session.pass_names
    assert session.engine.exact_precision == "fp32"


@pytest.mark.usefixtures("core")
def test_an_npu_that_cannot_compile_says_so_in_a_sentence() -> None:
    session = Session("npu", PLAIN)

    assert session.precision == "fp16"
    assert session.engine.exact_precision == "fp16"
    with pytest.raises(EngineError) as caught:
        session.compile(squares(), {"w": np.eye(4, dtype=np.float32)})
    assert str(caught.value) == (
        "OpenVINO could not compile graph `squares` for `npu`\n"
        "  got:      dynamic shapes are not supported\n"
        '  hint: use device="cpu"'
    )


def test_the_precision_is_asked_of_the_device(core: FakeCore) -> None:
    core.able = ["FP16"]
    with pytest.warns(SamgraphWarning, match="using fp16: untested"):
        assert Session("gpu", CompileOptions(precision="fp32", cache=False)).precision == "fp16"

    core.able = ["INT8"]
    with pytest.raises(EngineError, match="device `gpu` cannot be used here") as caught:
        Session("gpu", PLAIN)
    assert caught.value.got == "it computes neither in fp32 nor in fp16"


def test_a_device_that_openvino_does_not_see(core: FakeCore) -> None:
    with pytest.raises(EngineError) as caught:
        Session("gpu:2", PLAIN)

    assert str(caught.value) == (
        "device `gpu:2` cannot be used here\n"
        "  got:      OpenVINO sees CPU, GPU.0, GPU.1, NPU\n"
        '  hint: use device="cpu", or install the driver of the GPU'
    )


def test_a_device_that_fails_its_probe_is_not_used(
    core: FakeCore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tries: list[tuple[str, str]] = []

    def fails(target: str, precision: str) -> bool:
        tries.append((target, precision))
        return False

    monkeypatch.setattr(accelerators, "_probe", fails)
    engine = find_engine("openvino").on(Device("gpu", 1))

    for _ in range(2):  # the second time it is remembered
        with pytest.raises(EngineError, match=r"device `gpu\.1` does not work in fp16"):
            engine.decide(EngineOptions("fp16"), tmp_path / "machine.json")

    assert tries == [("GPU.1", "f16")]


@pytest.mark.parametrize(
    ("child", "works"),
    [
        ("print('works')", True),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", False),
        ("print('works'); raise SystemExit(3)", False),
        ("import sys; print(' '.join(sys.argv[1:]))", False),
    ],
)
def test_the_probe_survives_what_its_child_does(
    child: str, works: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accelerators, "_CHILD", child)

    assert accelerators._probe("GPU", "f16") is works


def test_the_real_probe_knows_right_from_absent() -> None:
    assert accelerators._probe("CPU", "f32")
    assert not accelerators._probe("NPU.7", "f16")


def test_all_devices_are_listed(core: FakeCore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bf16, "_probe", lambda: -1.0)
    engine: Any = find_engine("openvino")

    cpu, *others = engine.found(None)

    assert (cpu.device, cpu.precisions) == (Device("cpu"), ("fp32",))
    assert cpu.note == "bf16 killed a test process on this machine"
    assert [(str(one.device), one.precisions, one.memory_bytes) for one in others] == [
        ("gpu:0", ("fp32", "fp16"), 16_000_000_000),
        ("gpu:1", ("fp32", "fp16"), 16_000_000_000),
        ("npu", ("fp16",), None),
    ]

"""Which engine and device is taken: by name, `auto` with its reasons, and what is not here."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest

from samgraph.engines import Device, EngineOptions, devices, find_engine, parse_device
from samgraph.engines import protocol as protocol_module
from samgraph.engines.protocol import Listing
from samgraph.errors import EngineError, OptionError
from samgraph.runtime import CompileOptions, Session
from samgraph.runtime import devices as devices_module
from samgraph.runtime.devices import devices_here, loading_library

PLAIN = CompileOptions(threads=1, cache=False)


@pytest.mark.parametrize(
    ("text", "device"),
    [
        ("auto", None),
        ("cpu", Device("cpu")),
        ("cuda", Device("cuda")),
        ("cuda:0", Device("cuda", 0)),
        ("cuda:12", Device("cuda", 12)),
        ("gpu:1", Device("gpu", 1)),
        ("npu", Device("npu")),
        ("mps", Device("mps")),
        ("xpu:0", Device("xpu", 0)),
    ],
)
def test_a_device_is_read_as_it_prints(text: str, device: Device | None) -> None:
    assert parse_device(text) == device
    assert device is None or str(device) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "tpu",
        "mps:1",
        "cuda:",
        "cuda:x",
        "cuda:-1",
        "cuda:1:2",
        "CUDA",
        "cpu:0",
        "auto:0",
        " cpu",
    ],
)
def test_other_names_are_refused(text: str) -> None:
    with pytest.raises(OptionError) as caught:
        parse_device(text)

    assert str(caught.value) == (
        f"there is no device `{text}`\n  expected: auto, cpu, cuda, gpu, npu, mps, xpu or cuda:0"
    )


@pytest.mark.parametrize(
    ("kind", "index", "device"),
    [("cpu", None, Device("cpu")), ("cuda", None, Device("cuda")), ("cuda", 1, Device("cuda", 1))],
)
def test_a_device_of_torch_is_read_as_its_name(
    kind: str, index: int | None, device: Device
) -> None:
    torch = pytest.importorskip("torch")
    given = torch.device(kind) if index is None else torch.device(kind, index)

    assert parse_device(given) == device
    assert parse_device(device) is device


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("mps", "there is no Apple GPU"),
        ("gpu", "there is no Intel GPU"),
        ("xpu", "there is no Intel GPU"),
        ("npu", "there is no NPU"),
    ],
)
def test_a_device_that_is_not_here_is_refused_in_a_sentence(
    name: str, why: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    for folder in ("_GRAPHICS", "_ACCELERATORS"):
        monkeypatch.setattr(devices, folder, tmp_path)

    with pytest.raises(EngineError) as caught:
        Session(name, PLAIN)

    assert str(caught.value) == (
        f'device `{name}` cannot be used here\n  got:      {why}\n  hint: use device="auto"'
    )


def test_an_apple_gpu_is_known_by_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr("platform.machine", lambda: "arm64")

    assert parse_device("mps:0") == Device("mps")
    assert devices.why_absent(Device("mps")) is None


def test_intel_devices_are_counted_by_their_vendor(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name, vendor in (("renderD128", "0x8086"), ("renderD129", "0x10de"), ("accel0", "0x8086")):
        (tmp_path / name / "device").mkdir(parents=True)
        (tmp_path / name / "device" / "vendor").write_text(f"{vendor}\n")
    (tmp_path / "renderD130").mkdir()
    monkeypatch.setattr(sys, "platform", "linux")
    for folder in ("_GRAPHICS", "_ACCELERATORS"):
        monkeypatch.setattr(devices, folder, tmp_path)

    assert [devices.why_absent(Device(kind)) for kind in ("gpu", "xpu", "npu")] == [None] * 3
    assert devices.why_absent(Device("gpu", 1)) == "there is 1 of them"
    monkeypatch.setattr(sys, "platform", "win32")  # where only the engine can tell
    assert devices.why_absent(Device("gpu", 5)) is None


def test_cuda_without_torch_says_first_that_there_is_no_gpu(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Installing gigabytes of torch would not help."""
    listing = Listing("samgraph.engines.absent", extra="torch", candidate_for=("cuda",))
    monkeypatch.setitem(protocol_module._FOLDERS, "torch", listing)
    no_gpu(monkeypatch)
    with pytest.raises(EngineError) as caught:
        Session("cuda", PLAIN)
    assert str(caught.value) == (
        "device `cuda` cannot be used here\n"
        '  got:      there is no NVIDIA driver with a GPU\n  hint: use device="cpu"'
    )

    monkeypatch.setattr(devices, "_cuda_devices", lambda: 1)
    with pytest.raises(EngineError) as caught:
        Session("cuda", PLAIN)
    assert caught.value.hint == 'pip install samgraph[torch], or use device="cpu"'


def test_amd_gpus_are_counted_by_what_linux_says(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for number, cores in enumerate((0, 304, 304)):  # the first is the processor
        (tmp_path / str(number)).mkdir()
        text = f"cpu_cores_count 0\nsimd_count {cores}\nmem_banks_count 1\n"
        (tmp_path / str(number) / "properties").write_text(text)
    (tmp_path / "3").mkdir()
    monkeypatch.setattr(devices, "_AMD", tmp_path)
    monkeypatch.setattr(devices, "_cuda_devices", lambda: 0)

    assert devices.why_absent(Device("cuda", 1)) is None
    assert devices.why_absent(Device("cuda", 2)) == "there are 2 of them"


def test_an_amd_gpu_is_a_cuda_device(monkeypatch: pytest.MonkeyPatch) -> None:
    no_gpu(monkeypatch)
    monkeypatch.setattr(devices, "_rocm_devices", lambda: 1)

    assert devices.why_absent(Device("cuda")) is None


def test_a_session_says_where_it_runs() -> None:
    assert Session("cpu", PLAIN).device == Device("cpu")


def test_a_device_that_is_no_text_is_refused() -> None:
    with pytest.raises(OptionError, match="there is no device `3`"):
        Session(3)  # type: ignore[arg-type]  # a mistake


def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    for count in ("_cuda_devices", "_rocm_devices", "_intel_gpus", "_accelerators"):
        monkeypatch.setattr(devices, count, lambda: 0)


def test_auto_without_a_gpu_is_the_cpu_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    no_gpu(monkeypatch)

    assert Session("auto", PLAIN).reason == (
        "openvino on the cpu, 1 thread, fp32; not cuda: there is no NVIDIA driver with a GPU"
    )
    assert Session("cpu", PLAIN).reason == "openvino on the cpu, 1 thread, fp32"


def test_auto_with_a_gpu_that_no_engine_can_use_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "_cuda_devices", lambda: 1)
    listing = Listing("samgraph.engines.absent", extra="torch", candidate_for=("cuda",))
    monkeypatch.setitem(protocol_module._FOLDERS, "torch", listing)

    assert Session("auto", PLAIN).reason == (
        "openvino on the cpu, 1 thread, fp32; not cuda: engine `torch` cannot be loaded, "
        "No module named 'samgraph.engines.absent'"
    )


class OnGpu:
    """An engine that says it runs on a GPU, and is the reference."""

    devices = {"cuda": ("fp32", "bf16")}  # noqa: RUF012  (it stands for an engine)

    def __getattr__(self, name: str) -> object:
        return getattr(find_engine("reference"), name)

    def on(self, device: Device) -> "OnGpu":
        if device.index == 7:
            raise EngineError("device `cuda:7` cannot be used here", got="it is busy")
        return self

    def decide(self, wanted: EngineOptions, memory: Path | None) -> object:
        return find_engine("reference").decide(wanted, memory)


def test_auto_takes_a_gpu_that_works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "_cuda_devices", lambda: 1)
    listing = Listing("gpu_engine", candidate_for=("cuda",))
    monkeypatch.setitem(protocol_module._FOLDERS, "torch", listing)
    module = SimpleNamespace(engine=OnGpu())
    monkeypatch.setitem(sys.modules, "gpu_engine", module)

    assert Session("auto", PLAIN).reason.startswith("reference on cuda, fp32")
    assert Session("cuda:3", PLAIN).reason.startswith("reference on cuda:3, fp32")
    with pytest.raises(EngineError, match="device `cuda:7` cannot be used here"):
        Session("cuda:7", PLAIN)


def test_a_named_engine_goes_to_the_device_it_prefers_and_can_use(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    no_gpu(monkeypatch)
    options = CompileOptions(engine="reference", cache=False)

    assert Session("auto", options).reason.startswith("reference on the cpu, 1 thread, fp32")


def test_help_says_what_is_here(monkeypatch: pytest.MonkeyPatch) -> None:
    no_gpu(monkeypatch)
    monkeypatch.setattr(devices, "_cuda_devices", lambda: 2)
    assert devices_here() == "auto, cpu, cuda"

    no_gpu(monkeypatch)
    assert devices_here() == ("auto, cpu, cuda (not here: there is no NVIDIA driver with a GPU)")


def test_a_gpu_of_a_number_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "_cuda_devices", lambda: 2)

    assert devices.why_absent(Device("cuda", 1)) is None
    assert devices.why_absent(Device("cuda", 2)) == "there are 2 of them"
    assert devices.why_absent(Device("cpu")) is None


def test_the_driver_is_asked_without_an_error_where_there_is_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("no-such-library.so", "libm.so.6"):  # the second is no driver
        monkeypatch.setattr(devices, "_DRIVER", {sys.platform: name})
        assert devices._cuda_devices() == 0


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The engines whose library was loaded, on a machine without a GPU."""
    found: list[str] = []

    def find(name: str) -> SimpleNamespace:
        found.append(name)
        return SimpleNamespace(version=lambda: "1", devices=("cpu",))

    monkeypatch.setattr(devices_module, "find_engine", find)
    monkeypatch.setattr(
        devices_module, "why_absent", lambda device: None if device.kind == "cpu" else "none"
    )
    return found


@pytest.mark.parametrize("device", ["auto", "cpu", Device("cpu")])
def test_the_library_of_the_cpu_engine_is_loaded_beside_the_block(
    device: Any, asked: list[str]
) -> None:
    with loading_library(device, PLAIN):
        pass

    assert asked == ["openvino"]


@pytest.mark.parametrize("device", ["cuda", "nonsense", 7])
def test_no_library_is_loaded_for_another_device_or_none(device: Any, asked: list[str]) -> None:
    with loading_library(device, PLAIN):
        pass

    assert asked == []


def test_a_library_that_cannot_be_loaded_is_left_to_the_choice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(name: str) -> NoReturn:
        raise ImportError(name)

    monkeypatch.setattr(devices_module, "find_engine", refuse)

    with loading_library("cpu", PLAIN):
        pass

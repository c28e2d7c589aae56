"""`samgraph devices`, and the table it prints."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from samgraph.cli import main
from samgraph.engines import Device, find_engine
from samgraph.engines import protocol as protocol_module
from samgraph.engines.protocol import DeviceInfo, Listing
from samgraph.runtime.device_table import device_table
from samgraph.runtime.options import CompileOptions

PLAIN = CompileOptions(threads=1, cache=False)


class Finder:
    """The reference engine, with a list of devices."""

    devices = {"cuda": ("fp32",), "mps": ("fp32",)}  # noqa: RUF012  (it stands for an engine)
    name = "torch"

    def __getattr__(self, name: str) -> Any:
        return getattr(find_engine("reference"), name)

    def on(self, device: Device) -> "Finder":
        return self

    def found(self, memory: object) -> tuple[DeviceInfo, ...]:
        return (
            DeviceInfo(Device("cuda", 0), "H200 [one]", ("bf16", "fp32"), 143_000_000_000),
            DeviceInfo(Device("cuda", 1), "MI300", ("bf16",), 192_000_000_000, "ROCm, untested"),
        )


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No child process, no results of earlier ones, and no device but the CPU."""
    monkeypatch.setenv("SAMGRAPH_CACHE", str(tmp_path))
    monkeypatch.setattr("samgraph.engines.openvino.bf16._probe", lambda: -1.0)
    for count in ("_cuda_devices", "_rocm_devices", "_intel_gpus", "_accelerators"):
        monkeypatch.setattr(f"samgraph.engines.devices.{count}", lambda: 0)
    monkeypatch.setattr("platform.machine", lambda: "x86_64")


@pytest.fixture
def with_gpus(quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two GPUs that an engine finds, and an Intel one that none does."""
    monkeypatch.setattr("samgraph.engines.devices._cuda_devices", lambda: 2)
    monkeypatch.setattr("samgraph.engines.devices._intel_gpus", lambda: 1)
    listing = Listing("gpu_finder", candidate_for=("cuda",), by_name=("mps", "xpu"))
    monkeypatch.setitem(protocol_module._FOLDERS, "torch", listing)
    monkeypatch.setitem(__import__("sys").modules, "gpu_finder", SimpleNamespace(engine=Finder()))


@pytest.mark.usefixtures("quick")
def test_without_a_gpu_the_cpu_is_chosen_and_the_others_say_why_not() -> None:
    table = device_table(PLAIN)

    cpu, *others = table.rows
    assert (cpu.device, cpu.engine, cpu.precisions, cpu.is_chosen) == (
        "cpu", "openvino", ("fp32",), True,
    )  # fmt: skip
    assert cpu.memory_bytes is None or cpu.memory_bytes > 1 << 28
    assert [(row.device, row.why_not, row.is_tested) for row in others] == [
        ("cuda", "there is no NVIDIA driver with a GPU", True),
        ("gpu", "there is no Intel GPU", False),
        ("npu", "there is no NPU", False),
        ("mps", "there is no Apple GPU", False),
        ("xpu", "there is no Intel GPU", False),
    ]
    assert table.reason.startswith("openvino on the cpu, 1 thread, fp32; not cuda: there is no")


@pytest.mark.usefixtures("with_gpus")
def test_gpus_are_listed_and_the_first_is_chosen() -> None:
    rows = {row.device: row for row in device_table(PLAIN).rows}

    assert [name for name, row in rows.items() if row.is_chosen] == ["cuda:0"]
    assert rows["cuda:0"].is_tested
    assert not rows["cuda:1"].is_tested
    assert rows["gpu"].why_not == "engine `openvino` sees none"
    assert rows["xpu"].why_not == "engine `torch` sees none"


def test_an_engine_that_cannot_be_loaded_says_what_to_install(
    quick: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("samgraph.engines.devices._cuda_devices", lambda: 1)
    listing = Listing("samgraph.engines.absent", extra="torch", candidate_for=("cuda",))
    monkeypatch.setitem(protocol_module._FOLDERS, "torch", listing)
    with monkeypatch.context() as one_kind:
        one_kind.setattr("samgraph.runtime.device_table.KINDS", ("cpu", "cuda"))
        cpu, cuda = device_table(PLAIN).rows

    assert cpu.is_chosen
    assert cuda.why_not == "engine `torch` cannot be loaded: pip install samgraph[torch]"


@pytest.mark.usefixtures("with_gpus")
def test_the_command_prints_a_table_or_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["devices"]) == 0
    text = capsys.readouterr().out
    assert main.run(["devices", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)

    assert "H200 [one]" in text
    assert "143 GB" in text
    assert "ROCm" in text
    assert "not here: npu (there is no NPU)" in text
    assert text.splitlines()[-1].startswith("auto is torch on cuda, fp32")
    assert found["devices"][1]["device"] == "cuda:0"
    assert found["devices"][1]["is_chosen"] is True
    assert found["auto"].startswith("torch on cuda")

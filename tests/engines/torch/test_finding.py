"""GPUs that torch may see, none of which is here: a fake list of devices."""

from types import SimpleNamespace
from typing import Any

import pytest

from samgraph.engines import Device, EngineOptions, find_engine
from samgraph.errors import EngineError
from samgraph.runtime import CompileOptions, Session

torch = pytest.importorskip("torch")


def fake_cuda(monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int]) -> None:
    told: dict[str, Any] = {
        "is_available": lambda: True,
        "device_count": lambda: 2,
        "get_device_name": lambda index: f"GPU {index}",
        "mem_get_info": lambda index: (1, 80_000_000_000),
        "get_device_capability": lambda device: capability,
    }
    for name, answer in told.items():
        monkeypatch.setattr(torch.cuda, name, answer)


def fake_others(monkeypatch: pytest.MonkeyPatch) -> None:
    properties = SimpleNamespace(name="Arc", total_memory=16_000_000_000)
    xpu = SimpleNamespace(
        is_available=lambda: True,
        device_count=lambda: 1,
        get_device_properties=lambda index: properties,
    )
    monkeypatch.setattr(torch, "xpu", xpu)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)


def found() -> list[Any]:
    engine: Any = find_engine("torch")
    return [(str(one.device), one.name, one.memory_bytes, one.note) for one in engine.found(None)]


def test_every_gpu_is_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_cuda(monkeypatch, (9, 0))
    fake_others(monkeypatch)

    assert found() == [
        ("cuda:0", "GPU 0", 80_000_000_000, None),
        ("cuda:1", "GPU 1", 80_000_000_000, None),
        ("xpu:0", "Arc", 16_000_000_000, None),
        ("mps", "Apple GPU", None, None),
    ]


def test_an_old_gpu_is_listed_and_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_cuda(monkeypatch, (7, 5))

    assert found()[0][3] == "compute capability 7.5, too old"
    with pytest.raises(EngineError) as caught:
        Session("cuda:1", CompileOptions(cache=False))
    assert str(caught.value) == (
        "the GPU `cuda:1` is too old\n"
        "  got:      GPU cuda:1, compute capability 7.5\n"
        "  expected: 8.0 or newer\n"
        '  hint: use device="cpu"'
    )


def test_a_gpu_of_a_number_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_cuda(monkeypatch, (9, 0))
    fake_others(monkeypatch)
    engine: Any = find_engine("torch")

    assert engine.on(Device("cuda", 1)).device == Device("cuda", 1)
    for device, count in ((Device("cuda", 2), 2), (Device("xpu", 1), 1)):
        with pytest.raises(EngineError, match=f"device `{device}` cannot be used here") as caught:
            engine.on(device)
        assert f"torch sees {count} of them" in str(caught.value)


def test_an_amd_gpu_is_said_to_be_rocm(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_cuda(monkeypatch, (7, 5))  # numbered otherwise, so not too old
    monkeypatch.setattr(torch.version, "hip", "6.2")

    assert found()[0][3] == "ROCm, untested"
    engine = find_engine("torch").on(Device("cuda"))
    assert engine.decide(EngineOptions("bf16"), None).why == "ROCm, untested"


@pytest.mark.parametrize("kind", ["mps", "xpu"])
def test_other_gpus_are_used_as_they_are_and_said_to_be_untested(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_others(monkeypatch)
    monkeypatch.setattr("samgraph.runtime.devices.why_absent", lambda device: None)

    session = Session(kind, CompileOptions(cache=False))

    assert session.reason == f"torch on {kind}, fp32: untested"
    assert session.buffers.images is None
    assert not session.engine.fuses  # type: ignore[attr-defined]  # the torch engine
    assert session.engine.version() == f"{torch.__version__}|{kind}"


@pytest.mark.parametrize("kind", ["mps", "xpu"])
def test_a_gpu_that_torch_was_not_built_for(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "xpu", SimpleNamespace(is_available=lambda: False))
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)

    with pytest.raises(EngineError) as caught:
        find_engine("torch").on(Device(kind))

    assert str(caught.value) == (
        f"device `{kind}` cannot be used here\n"
        f"  got:      torch {torch.__version__}, which sees no {kind} device\n"
        '  hint: use device="cpu", or install a torch built for it'
    )


def test_an_apple_gpu_without_memory_left_says_so_in_words() -> None:
    from samgraph.engines.torch.memory import is_out_of_memory

    assert is_out_of_memory(RuntimeError("MPS backend out of memory (MPS allocated: 1 GB)"))
    assert is_out_of_memory(torch.OutOfMemoryError("CUDA out of memory"))
    assert not is_out_of_memory(RuntimeError("sizes do not match"))

"""The GPUs that torch sees: NVIDIA's and AMD's (`cuda`), Intel's (`xpu`), Apple's (`mps`)."""

from collections.abc import Iterator
from typing import Any

import torch

from samgraph.engines.devices import Device
from samgraph.engines.protocol import DeviceInfo
from samgraph.errors import EngineError

OLDEST = (8, 0)  # the first compute capability with bf16


def is_rocm() -> bool:
    """Whether what torch calls CUDA is an AMD GPU."""
    return getattr(torch.version, "hip", None) is not None


def check_device(device: Device) -> None:
    """Raise `EngineError` where a GPU is absent or too old."""
    if device.kind == "cuda":
        _check_cuda(device)
    elif device.kind in ("mps", "xpu"):
        _check_other(device)


def found_devices() -> Iterator[DeviceInfo]:
    """Every GPU, without its precisions."""
    if torch.cuda.is_available():
        for index in range(torch.cuda.device_count()):
            device = Device("cuda", index)
            name, memory = torch.cuda.get_device_name(index), torch.cuda.mem_get_info(index)[1]
            yield DeviceInfo(device, name, (), memory, _cuda_note(device))
    if _is_available("xpu"):
        xpu: Any = torch.xpu
        for index in range(xpu.device_count()):
            properties = xpu.get_device_properties(index)
            yield DeviceInfo(Device("xpu", index), properties.name, (), properties.total_memory)
    if _is_available("mps"):
        yield DeviceInfo(Device("mps"), "Apple GPU", (), None)


def _cuda_note(device: Device) -> str | None:
    if is_rocm():
        return "ROCm, untested"
    capability = torch.cuda.get_device_capability(str(device))
    return f"compute capability {_dotted(capability)}, too old" if capability < OLDEST else None


def _check_cuda(device: Device) -> None:
    if not torch.cuda.is_available():
        raise EngineError(
            f"device `{device}` cannot be used here",
            got=f"torch {torch.__version__}, which sees no CUDA device",
            hint='use device="cpu", or install a torch built for CUDA',
        )
    _check_number(device, torch.cuda.device_count())
    capability = torch.cuda.get_device_capability(str(device))
    if capability < OLDEST and not is_rocm():
        raise EngineError(
            f"the GPU `{device}` is too old",
            got=f"{torch.cuda.get_device_name(str(device))}, "
            f"compute capability {_dotted(capability)}",
            expected=f"{_dotted(OLDEST)} or newer",
            hint='use device="cpu"',
        )


def _check_other(device: Device) -> None:
    if not _is_available(device.kind):
        raise EngineError(
            f"device `{device}` cannot be used here",
            got=f"torch {torch.__version__}, which sees no {device.kind} device",
            hint='use device="cpu", or install a torch built for it',
        )
    if device.kind == "xpu":
        _check_number(device, getattr(torch, device.kind).device_count())


def _check_number(device: Device, count: int) -> None:
    if (device.index or 0) >= count:
        raise EngineError(
            f"device `{device}` cannot be used here",
            got=f"torch sees {count} of them",
            hint=f'use device="{device.kind}"',
        )


def _is_available(kind: str) -> bool:
    """Whether torch can use its devices of a kind."""
    module: Any = torch.backends.mps if kind == "mps" else getattr(torch, kind, None)
    return module is not None and bool(module.is_available())


def _dotted(numbers: tuple[int, int]) -> str:
    return ".".join(map(str, numbers))

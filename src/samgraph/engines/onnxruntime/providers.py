"""Execution providers of ONNX Runtime, by kind of device."""

from collections.abc import Mapping, Sequence
from typing import Any

import onnxruntime

from samgraph.engines.devices import KINDS, Device
from samgraph.errors import EngineError
from samgraph.passes.pipeline import Precision

CPU = "CPUExecutionProvider"
# The preferred first. What a provider has no kernel for runs on the CPU.
PROVIDERS: dict[str, tuple[str, ...]] = {
    "cpu": (CPU,),
    "cuda": ("CUDAExecutionProvider",),
    "gpu": ("DmlExecutionProvider", "CoreMLExecutionProvider", "OpenVINOExecutionProvider"),
    "npu": ("QNNExecutionProvider", "CoreMLExecutionProvider", "OpenVINOExecutionProvider"),
}
_PRECISIONS: dict[str, tuple[Precision, ...]] = {"cpu": ("fp32",)}
_INDEXED = ("CUDAExecutionProvider", "DmlExecutionProvider")


def installed() -> list[str]:
    """The providers of this build of ONNX Runtime."""
    found: list[str] = onnxruntime.get_available_providers()
    return found


def devices(available: Sequence[str]) -> Mapping[str, tuple[Precision, ...]]:
    """The kinds of device that these providers run on, with their precisions."""
    return {
        kind: _PRECISIONS.get(kind, ("fp32",))
        for kind, names in PROVIDERS.items()
        if kind in KINDS and any(name in available for name in names)
    }


def providers_for(device: Device, available: Sequence[str]) -> list[tuple[str, dict[str, Any]]]:
    """The providers to run on a device, each with its options; the CPU's is the last."""
    found = [name for name in PROVIDERS.get(device.kind, ()) if name in available]
    if not found:
        raise EngineError(
            f"ONNX Runtime cannot use device `{device}`",
            got=", ".join(available),
            expected=" or ".join(PROVIDERS.get(device.kind, ())),
            hint='use device="cpu", or install the build of onnxruntime for it',
        )
    return [(name, _options(name, device)) for name in dict.fromkeys((found[0], CPU))]


def _options(name: str, device: Device) -> dict[str, Any]:
    if name in _INDEXED:
        return {"device_id": str(device.index or 0)}
    if name == "OpenVINOExecutionProvider":
        return {"device_type": device.kind.upper()}
    return {}

"""Execution providers of ONNX Runtime, by kind of device. Only the CPU's could be tried here."""

from collections.abc import Mapping, Sequence
from typing import Any

import onnxruntime

from samgraph.engines.devices import Device
from samgraph.errors import EngineError
from samgraph.passes.pipeline import Precision

CPU = "CPUExecutionProvider"
# The preferred first. What a provider has no kernel for runs on the CPU. TensorRT is the last: it
# builds an engine for every new combination of lengths, which takes minutes.
PROVIDERS: dict[str, tuple[str, ...]] = {
    "cpu": (CPU,),
    "cuda": (
        "CUDAExecutionProvider", "ROCMExecutionProvider", "MIGraphXExecutionProvider",
        "TensorrtExecutionProvider",
    ),
    "gpu": ("DmlExecutionProvider", "CoreMLExecutionProvider", "OpenVINOExecutionProvider"),
    "npu": ("QNNExecutionProvider", "CoreMLExecutionProvider", "OpenVINOExecutionProvider"),
    "mps": ("CoreMLExecutionProvider",),
}  # fmt: skip
# Kinds of device that some build of ONNX Runtime runs on, with their precisions.
DEVICES: Mapping[str, tuple[Precision, ...]] = dict.fromkeys(PROVIDERS, ("fp32",))
_HAVE_NUMBERS = (*PROVIDERS["cuda"], "DmlExecutionProvider")
_CORE_ML = {"npu": "CPUAndNeuralEngine"}


def installed() -> list[str]:
    """The providers of this build of ONNX Runtime."""
    found: list[str] = onnxruntime.get_available_providers()
    return found


def providers_for(device: Device, available: Sequence[str]) -> list[tuple[str, dict[str, Any]]]:
    """The providers to run on a device, each with its options; the CPU's is the last."""
    known = PROVIDERS.get(device.kind, ())
    found = [name for name in known if name in available]
    if not found:
        raise EngineError(
            f"ONNX Runtime cannot use device `{device}`",
            got=f"a build with {', '.join(available)}",
            expected=" or ".join(known) or f"one of {', '.join(PROVIDERS)}",
            hint='use device="cpu", or install the build of onnxruntime for it',
        )
    return [(name, _options(name, device)) for name in dict.fromkeys((found[0], CPU))]


def check_used(device: Device, wanted: str, used: Sequence[str]) -> None:
    """Raise `EngineError` where a session runs without the provider that was asked for."""
    if wanted not in used:
        raise EngineError(
            f"ONNX Runtime cannot use device `{device}`",
            got=f"{wanted} is installed but did not start: a driver or library is missing",
            hint='use device="cpu"',
        )


def _options(name: str, device: Device) -> dict[str, Any]:
    """Float32, on the device with the number."""
    if name == "CUDAExecutionProvider":
        return {"device_id": str(device.index or 0), "use_tf32": "0"}
    if name in _HAVE_NUMBERS:
        return {"device_id": str(device.index or 0)}
    if name == "CoreMLExecutionProvider":
        units = _CORE_ML.get(device.kind, "CPUAndGPU")
        return {"ModelFormat": "MLProgram", "MLComputeUnits": units}
    if name == "OpenVINOExecutionProvider":
        where = device.kind.upper() + (f".{device.index}" if device.index else "")
        return {"device_type": where, **({"precision": "FP32"} if device.kind == "gpu" else {})}
    return {}

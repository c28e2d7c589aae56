"""OpenVINO's other devices, Intel GPUs and NPUs: which are here, and whether they work.

Written without such a machine at hand. A device is used only after a child process has run a
product on it and got the right numbers, since drivers may kill the process that tries them; what
came of it is cached per machine and OpenVINO version.
"""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from samgraph.engines.devices import Device
from samgraph.engines.openvino.bf16 import recall, remember
from samgraph.engines.openvino.library import Core, Hints
from samgraph.errors import EngineError
from samgraph.passes.pipeline import Precision

PRECISIONS: dict[str, tuple[Precision, ...]] = {"gpu": ("fp32", "fp16"), "npu": ("fp16", "fp32")}
HINTS = {"fp32": "f32", "fp16": "f16"}
_CAPABILITY = {"fp32": "FP32", "fp16": "FP16"}
_MEMORY = {"gpu": "GPU_DEVICE_TOTAL_MEM_SIZE", "npu": "NPU_DEVICE_TOTAL_MEM_SIZE"}
_TIMEOUT_SECONDS = 120

_CHILD = """
import sys
sys.modules["openvino_telemetry"] = None
import numpy, openvino
from openvino import opset15 as o
target, precision = sys.argv[1:]
rng = numpy.random.default_rng(0)
data, weight = (rng.standard_normal((256, 256), numpy.float32) for _ in range(2))
x = o.parameter([256, 256], numpy.float32)
model = openvino.Model([o.result(o.matmul(x, o.constant(weight), False, True))], [x])
hints = {"INFERENCE_PRECISION_HINT": precision}
request = openvino.Core().compile_model(model, target, hints).create_infer_request()
found, right = request.infer([data])[0], data @ weight.T
assert numpy.linalg.norm(found - right) < 0.01 * numpy.linalg.norm(right)
print("works")
"""


def find_target(core: Core, device: Device) -> str:
    """OpenVINO's name of a device.

    Raises:
        EngineError: It has none of this kind here, or not so many.
    """
    family = device.kind.upper()
    found = [name for name in core.available_devices if name.partition(".")[0] == family]
    index = device.index or 0
    if index >= len(found):
        raise EngineError(
            f"device `{device}` cannot be used here",
            got=f"OpenVINO sees {', '.join(core.available_devices)}",
            hint=f'use device="cpu", or install the driver of the {family}',
        )
    return found[index]


def able(core: Core, kind: str, target: str) -> tuple[Precision, ...]:
    """The precisions that a device reports, the preferred first."""
    capabilities: Sequence[str] = core.get_property(target, "OPTIMIZATION_CAPABILITIES")
    return tuple(one for one in PRECISIONS[kind] if _CAPABILITY[one] in capabilities)


def memory_bytes(core: Core, kind: str, target: str) -> int | None:
    """How much memory a device has, if it reports it."""
    try:
        return int(core.get_property(target, _MEMORY[kind]))
    except (RuntimeError, TypeError, ValueError):
        return None


def check_works(target: str, precision: Precision, version: str, memory: Path | None) -> None:
    """Raise `EngineError` where a child process did not get the right numbers from a device."""
    key, known = f"{target}|{precision}|{version}", recall(memory)
    if key not in known:
        known[key] = 1.0 if _probe(target, HINTS[precision]) else -1.0
        remember(memory, known)
    if known[key] < 0:
        raise EngineError(
            f"device `{target.lower()}` does not work in {precision}",
            got="a test process that multiplied two matrices on it failed",
            hint='use device="cpu", or another precision',
        )


def hints(target: str, precision: Precision) -> Hints:
    """How a model is compiled for such a device."""
    mode = "ACCURACY" if precision == "fp32" else "PERFORMANCE"
    return {"INFERENCE_PRECISION_HINT": HINTS[precision], "EXECUTION_MODE_HINT": mode}


def _probe(target: str, precision: str) -> bool:
    try:
        child = subprocess.run(  # noqa: S603  (our own interpreter and our own text)
            [sys.executable, "-c", _CHILD, target, precision],
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return child.returncode == 0 and child.stdout.strip() == "works"

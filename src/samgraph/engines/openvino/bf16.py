"""Whether bf16 works on this machine, tested in a child process, which may crash.

On some virtual machines the processor reports matrix instructions that the hypervisor does not
support; OpenVINO's bf16 code then dies with an illegal instruction. The child runs the same
kernels; bf16 is allowed only if it survives and is at least a tenth faster than float32. The result
is cached per machine and OpenVINO version.
"""

import json
import math
import os
import platform
import re
import subprocess
import sys
from pathlib import Path

from samgraph.untrusted.files import read_regular
from samgraph.untrusted.text import strict_json

GAIN_WANTED = 1.1
MOST_BYTES = 1 << 16  # of the file with cached results
_TIMEOUT_SECONDS = 120

_CHILD = """
import sys, time
sys.modules["openvino_telemetry"] = None
import numpy, openvino
from openvino import opset15 as o
core, rng = openvino.Core(), numpy.random.default_rng(0)
data, times = rng.standard_normal((1024, 1024), numpy.float32), {}
for precision in ("f32", "bf16"):
    x = y = o.parameter([1024, 1024], numpy.float32)
    for _ in range(4):
        weight = rng.standard_normal((1024, 1024), numpy.float32) / 32
        a, b = (o.convert(operand, precision) for operand in (y, o.constant(weight)))
        y = o.gelu(o.convert(o.matmul(a, b, False, True), "f32"), "erf")
    model = openvino.Model([o.result(y)], [x])
    hints = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": 1}
    request = core.compile_model(model, "CPU", hints).create_infer_request()
    request.infer([data])
    spans = []
    for _ in range(5):
        start = time.perf_counter()
        request.infer([data])
        spans.append(time.perf_counter() - start)
    times[precision] = min(spans)
print("gain", times["f32"] / times["bf16"])
"""


def bf16_verdict(memory: Path | None, version: str) -> tuple[bool, str]:
    """Whether bf16 may be used, and the reason."""
    key = f"{platform.processor()}|{_processor()}|{version}|{os.environ.get('ONEDNN_MAX_CPU_ISA')}"
    known = recall(memory)
    if key not in known:
        known[key] = _probe()
        remember(memory, known)
    gain = known[key]
    if gain < 0:
        return False, "bf16 killed a test process on this machine"
    if gain < GAIN_WANTED:
        return False, f"bf16 runs at {gain:.2f} times the speed of fp32 on this machine"
    return True, f"bf16 runs at {gain:.2f} times the speed of fp32 on this machine"


def _probe() -> float:
    """The speed-up of bf16 over fp32; -1 if the child crashed."""
    try:
        child = subprocess.run(  # noqa: S603  (our own interpreter and our own text)
            [sys.executable, "-c", _CHILD],
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return -1.0
    found = re.fullmatch(r"gain (\d+\.\d+)\s*", child.stdout)
    return round(float(found[1]), 3) if found and child.returncode == 0 else -1.0


def _processor() -> str:
    """The name of the processor, if the system reports it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.machine()
    return next((line.split(":", 1)[1].strip() for line in lines if "model name" in line), "")


def recall(memory: Path | None) -> dict[str, float]:
    """The numbers in a file of cached results; none where it is missing or damaged."""
    try:
        raw = read_regular(memory, MOST_BYTES) if memory else None
        known = strict_json(raw) if raw else {}
    except (OSError, ValueError):
        return {}
    if not isinstance(known, dict):
        return {}
    gains = {str(key): gain for key, gain in known.items() if isinstance(gain, float)}
    return {key: gain for key, gain in gains.items() if math.isfinite(gain)}


def remember(memory: Path | None, known: dict[str, float]) -> None:
    """Write them, if that can be done."""
    if memory is None:
        return
    try:
        memory.parent.mkdir(parents=True, exist_ok=True)
        fresh = memory.with_suffix(f".{os.getpid()}.tmp")
        fresh.write_text(json.dumps(known), encoding="utf-8")
        fresh.replace(memory)
    except OSError:
        return  # the probe runs again next time

"""Names of devices, and whether this machine has them. No engine library is imported."""

import ctypes
import platform
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeAlias

from samgraph.errors import OptionError

# `gpu` and `npu` are Intel's, by OpenVINO; `xpu` is an Intel GPU and `mps` an Apple one, by torch.
# torch calls an AMD GPU `cuda` too (ROCm).
KINDS = ("cpu", "cuda", "gpu", "npu", "mps", "xpu")
UNTESTED = ("gpu", "npu", "mps", "xpu")  # written without such a machine at hand
AUTO = "auto"
_SINGLE = ("cpu", "mps")
_INTEL = "0x8086"
_GRAPHICS, _ACCELERATORS = Path("/sys/class/drm"), Path("/sys/class/accel")
_AMD = Path("/sys/class/kfd/kfd/topology/nodes")  # of AMD's driver; processors are nodes as well
_CORES = re.compile(r"simd_count \d")
_NAME = re.compile(r"([a-z]+)(?::(\d{1,3}))?")
_DRIVER = {"win32": "nvcuda.dll"}
_ROCM = {"win32": "amdhip64.dll"}


@dataclass(frozen=True, slots=True)
class Device:
    """A device: its kind, and its index if there are several."""

    kind: str
    index: int | None = None

    def __str__(self) -> str:
        return self.kind if self.index is None else f"{self.kind}:{self.index}"


class LibraryDevice(Protocol):
    """A device of another library, such as `torch.device`."""

    @property
    def type(self) -> str:
        """The kind of device."""

    @property
    def index(self) -> int | None:
        """Which of them."""


DeviceLike: TypeAlias = "str | Device | LibraryDevice"


def parse_device(device: DeviceLike) -> Device | None:
    """The device of a name, such as `cpu` or `cuda:1`, or of a `torch.device`; None for `auto`."""
    if isinstance(device, Device):
        return device
    text = str(device) if hasattr(device, "type") and hasattr(device, "index") else device
    if isinstance(text, str) and text == AUTO:
        return None
    if text == "mps:0":
        return Device("mps")
    found = _NAME.fullmatch(text) if isinstance(text, str) else None
    if found is None or found[1] not in KINDS or (found[1] in _SINGLE and found[2]):
        raise OptionError(
            f"there is no device `{text}`", expected=f"{AUTO}, {', '.join(KINDS)} or cuda:0"
        )
    return Device(found[1], None if found[2] is None else int(found[2]))


def why_absent(device: Device) -> str | None:
    """Why this machine has no such device, in a few words; None where it has, or may have."""
    if device.kind == "cpu":
        return None
    if device.kind == "mps":
        is_apple = sys.platform == "darwin" and platform.machine() == "arm64"
        return None if is_apple else "there is no Apple GPU"
    if device.kind == "cuda":
        count: int | None = _cuda_devices() or _rocm_devices()
    else:
        count = _accelerators() if device.kind == "npu" else _intel_gpus()
    if count == 0:
        return {
            "cuda": "there is no NVIDIA driver with a GPU",
            "npu": "there is no NPU",
        }.get(device.kind, "there is no Intel GPU")
    if count is not None and device.index is not None and device.index >= count:
        return f"there {'is' if count == 1 else 'are'} {count} of them"
    return None


def _cuda_devices() -> int:
    """The number of GPUs, from the NVIDIA driver's own library, which is fast."""
    return _counted(_DRIVER.get(sys.platform, "libcuda.so.1"), "cuInit", "cuDeviceGetCount")


def _rocm_devices() -> int:
    """The number of AMD GPUs: from Linux, as torch brings its own library; else from ROCm's."""
    nodes = [_read(node / "properties") for node in _AMD.glob("*")]
    cores = [line.split()[1] for text in nodes for line in text.splitlines() if _CORES.match(line)]
    if any(cores):
        return sum(count != "0" for count in cores)
    return _counted(_ROCM.get(sys.platform, "libamdhip64.so"), "hipInit", "hipGetDeviceCount")


def _counted(library: str, start: str, count: str) -> int:
    """What a driver's library counts; 0 where it is missing, or is another library."""
    try:
        driver, found = ctypes.CDLL(library), ctypes.c_int(0)
        works = getattr(driver, start)(0) == 0 and getattr(driver, count)(ctypes.byref(found)) == 0
    except (OSError, AttributeError):
        return 0
    return found.value if works else 0


def _intel_gpus() -> int | None:
    """The number of Intel GPUs that Linux has; none on a Mac, None elsewhere: not known."""
    if sys.platform == "win32":
        return None
    vendors = [_read(card / "device" / "vendor") for card in _GRAPHICS.glob("renderD*")]
    return vendors.count(_INTEL)


def _accelerators() -> int | None:
    """The number of Intel NPUs, likewise."""
    if sys.platform == "win32":
        return None
    vendors = [_read(one / "device" / "vendor") for one in _ACCELERATORS.glob("accel*")]
    return vendors.count(_INTEL)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""

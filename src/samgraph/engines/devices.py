"""Names of devices, and whether this machine has them. No engine library is imported."""

import ctypes
import re
import sys
import warnings
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from samgraph.errors import EngineError, OptionError, SamgraphWarning

KINDS = ("cpu", "cuda")
AUTO = "auto"
_NAME = re.compile(r"([a-z]+)(?::(\d{1,3}))?")
_DRIVER = {"win32": "nvcuda.dll"}


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
    """The device of a name, such as `cpu` or `cuda:1`, or of a `torch.device`; None for `auto`.

    `mps`, an Apple GPU, is taken as the CPU, with a warning.
    """
    if isinstance(device, Device):
        return device
    text = str(device) if hasattr(device, "type") and hasattr(device, "index") else device
    if text in ("mps", "mps:0"):
        if sys.platform != "darwin":
            raise EngineError(
                f"device `{text}` cannot be used here",
                got="there is no Apple GPU",
                hint='use device="auto"',
            )
        warnings.warn("using the cpu: no engine runs on mps", SamgraphWarning, stacklevel=5)
        return Device("cpu")
    found = _NAME.fullmatch(text) if isinstance(text, str) else None
    if isinstance(text, str) and text == AUTO:
        return None
    if found is None or found[1] not in KINDS or (found[1] == "cpu" and found[2]):
        raise OptionError(
            f"there is no device `{text}`", expected=f"{AUTO}, {', '.join(KINDS)} or cuda:0"
        )
    return Device(found[1], None if found[2] is None else int(found[2]))


def why_absent(device: Device) -> str | None:
    """Why this machine has no such device, in a few words; None where it has."""
    if device.kind != "cuda":
        return None
    count = _cuda_devices()
    if count == 0:
        return "there is no NVIDIA driver with a GPU"
    if device.index is not None and device.index >= count:
        return f"there {'is' if count == 1 else 'are'} {count} of them"
    return None


def _cuda_devices() -> int:
    """The number of GPUs, from the NVIDIA driver's own library, which is fast."""
    try:
        driver = ctypes.CDLL(_DRIVER.get(sys.platform, "libcuda.so.1"))
        count = ctypes.c_int(0)
        found = driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0
    except (OSError, AttributeError):  # no driver, or another library of this name
        return 0
    return count.value if found else 0

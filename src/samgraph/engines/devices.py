"""Devices: how they are named, and whether this machine has one. No engine library is imported."""

import ctypes
import re
import sys
from dataclasses import dataclass

from samgraph.errors import OptionError

KINDS = ("cpu", "cuda")
AUTO = "auto"
_NAME = re.compile(r"([a-z]+)(?::(\d{1,3}))?")
_DRIVER = {"win32": "nvcuda.dll"}


@dataclass(frozen=True, slots=True)
class Device:
    """Where a graph runs: a kind, and which of them where there are several."""

    kind: str
    index: int | None = None

    def __str__(self) -> str:
        return self.kind if self.index is None else f"{self.kind}:{self.index}"


def parse_device(text: str) -> Device | None:
    """The device that `text` names, such as `cpu` or `cuda:1`; None for `auto`."""
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
    """How many GPUs the NVIDIA driver shows; asked of the driver itself, which takes no time."""
    try:
        driver = ctypes.CDLL(_DRIVER.get(sys.platform, "libcuda.so.1"))
        count = ctypes.c_int(0)
        found = driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0
    except (OSError, AttributeError):  # not there, or another library of this name
        return 0
    return count.value if found else 0

"""Conversions between arrays in main memory and torch, which is not imported here."""

import sys
from typing import Any

import ml_dtypes
import numpy as np

BFLOAT16: Any = ml_dtypes.bfloat16


class HostDevice(str):
    """A device by name, with the fields of `torch.device`."""

    @property
    def type(self) -> str:
        """The kind of device, such as `cpu`."""
        return self.partition(":")[0]

    @property
    def index(self) -> int | None:  # type: ignore[override]  # torch's field, not the method
        """The index of the device; None if not given."""
        number = self.partition(":")[2]
        return int(number) if number else None


class Size(int):
    """The number of elements, as in numpy; called, the shape, as in torch."""

    shape: tuple[int, ...]

    def __call__(self, dim: int | None = None) -> Any:
        """The shape, or the length of one dimension."""
        return self.shape if dim is None else self.shape[dim]


def imported_torch() -> Any:
    """The library torch, where a program has imported it."""
    return sys.modules.get("torch")


def device_named(name: str) -> Any:
    """A `torch.device` where torch is imported, else a text with its fields."""
    torch = imported_torch()
    return HostDevice(name) if torch is None else torch.device(name)


def is_torch(value: Any) -> bool:
    """Whether a value is one of torch's tensors; torch is not imported."""
    torch = imported_torch()
    return torch is not None and isinstance(value, torch.Tensor)


def to_host(value: Any) -> Any:
    """Torch's tensors as arrays in main memory, in lists and tuples too; the rest as it is."""
    if is_torch(value):
        plain = value.detach().cpu()
        return (plain.float() if "bfloat16" in str(plain.dtype) else plain).numpy()
    if isinstance(value, list | tuple) and any(map(is_torch, value)):
        return type(value)([to_host(item) for item in value])
    return value


def numpy_dtype(dtype: Any) -> Any:
    """The numpy dtype of a dtype of torch or numpy."""
    name = str(dtype)
    if name.startswith("torch."):
        name = name.removeprefix("torch.")
        return BFLOAT16 if name == "bfloat16" else np.dtype(name)
    return dtype


def as_torch(array: Any) -> Any:
    """One of torch's tensors with the same memory, or a copy where torch cannot share it."""
    import torch

    plain = np.asarray(array)
    if plain.dtype == BFLOAT16:
        return torch.from_numpy(plain.astype(np.float32)).bfloat16()
    is_shared = plain.flags.writeable and all(step >= 0 for step in plain.strides)
    return torch.from_numpy(plain if is_shared else plain.copy())

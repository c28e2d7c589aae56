"""Buffers of the torch engine: tensors on one device."""

from collections.abc import Sequence
from typing import Any

import torch

from samgraph.engines.torch.tensors import TORCH_DTYPES, to_array, to_tensor
from samgraph.graph.types import Array, DType

_NAMES: dict[torch.dtype, DType] = {dtype: name for name, dtype in TORCH_DTYPES.items()}


class TorchBuffers:
    """What the engine does with tensors outside of its graphs; only `download` waits."""

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def owns(self, value: object) -> bool:
        """Whether it is a tensor on this device."""
        return isinstance(value, torch.Tensor) and value.device.type == self.device.type

    def dtype(self, buffer: Any) -> DType | None:
        """Our name for the dtype of a tensor."""
        return _NAMES.get(buffer.dtype)

    def fits(self, values: Sequence[Any], dtypes: Sequence[DType]) -> bool:
        """Whether all are tensors on this device, of these dtypes."""
        pairs = zip(values, dtypes, strict=True)
        return all(self.owns(value) and self.dtype(value) == dtype for value, dtype in pairs)

    def upload(self, array: Array) -> torch.Tensor:
        """A tensor on the device."""
        return to_tensor(array, self.device)

    def download(self, buffer: Any) -> Array:
        """An array of the caller's own."""
        return to_array(buffer)

    def zeros(self, shape: Sequence[int], dtype: DType) -> torch.Tensor:
        """A tensor of zeros."""
        return torch.zeros(tuple(shape), dtype=TORCH_DTYPES[dtype], device=self.device)

    def write(self, target: Any, rows: Sequence[int], values: Any) -> None:
        """One copy per row, on the device."""
        for row, value in zip(rows, values, strict=True):
            target[row].copy_(value)

    def concat(self, parts: Sequence[Any]) -> torch.Tensor:
        """One copy; none of a single part."""
        return parts[0] if len(parts) == 1 else torch.cat(list(parts))

    def repeat(self, buffer: Any, count: int) -> torch.Tensor:
        """A view."""
        tensor: torch.Tensor = buffer.expand(count, *buffer.shape[1:])
        return tensor

    def clip(self, buffer: Any, limit: float) -> torch.Tensor:
        """A new tensor."""
        tensor: torch.Tensor = buffer.clip(-limit, limit)
        return tensor

"""Buffers of the torch engine: tensors on one device."""

import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from samgraph.engines.buffers import DeviceImages
from samgraph.engines.torch.images import TorchImages
from samgraph.engines.torch.memory import reports_full
from samgraph.engines.torch.tensors import TORCH_DTYPES, to_array, to_tensor
from samgraph.graph.types import Array, DType

_NAMES: dict[torch.dtype, DType] = {dtype: name for name, dtype in TORCH_DTYPES.items()}
_SMALL_BYTES = 4096
_MOST_SMALL = 1024


class TorchBuffers:
    """What the engine does with tensors outside of its graphs; only `download` waits.

    On a GPU small arrays are copied once: which pages of the bank are read, flags and times recur
    from frame to frame.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.images: DeviceImages | None = TorchImages(device) if device.type == "cuda" else None
        self._small = _SmallArrays(device)

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

    @reports_full
    def upload(self, array: Array) -> torch.Tensor:
        """A tensor on the device."""
        if self.device.type != "cuda":
            return to_tensor(array, self.device)
        if array.nbytes <= _SMALL_BYTES:
            return self._small.get(array)
        here = to_tensor(array, torch.device("cpu"))
        return here.pin_memory().to(self.device, non_blocking=True)

    def download(self, buffer: Any) -> Array:
        """A new array."""
        return to_array(buffer)

    @reports_full
    def zeros(self, shape: Sequence[int], dtype: DType) -> torch.Tensor:
        """A tensor of zeros."""
        return torch.zeros(tuple(shape), dtype=TORCH_DTYPES[dtype], device=self.device)

    @reports_full
    def write(self, target: Any, rows: Sequence[int], values: Any) -> None:
        """One copy on the device."""
        if len(rows) == 1:
            target[rows[0]].copy_(values[0])
        elif rows:
            index = self.upload(np.array(rows, np.int64))
            target.index_copy_(0, index, values.to(target.dtype))

    @reports_full
    def concat(self, parts: Sequence[Any]) -> torch.Tensor:
        """One copy; none of a single part."""
        return parts[0] if len(parts) == 1 else torch.cat(list(parts))

    def repeat(self, buffer: Any, count: int) -> torch.Tensor:
        """A view."""
        tensor: torch.Tensor = buffer.expand(count, *buffer.shape[1:])
        return tensor

    @reports_full
    def clip(self, buffer: Any, limit: float) -> torch.Tensor:
        """A new tensor."""
        tensor: torch.Tensor = buffer.clip(-limit, limit)
        return tensor


class _SmallArrays:
    """Tensors of the small arrays uploaded last, looked up by content.

    They are copied on a separate stream, the only one the host waits for, so that every stream may
    read them; readers call `record_stream` (`GraphRunner`).
    """

    def __init__(self, device: torch.device) -> None:
        self._device, self._lock = device, threading.Lock()
        self._known: OrderedDict[tuple[object, ...], torch.Tensor] = OrderedDict()
        self._stream: torch.cuda.Stream | None = None

    def get(self, array: Array) -> torch.Tensor:
        """A tensor of the values in `array`, to be read only."""
        key = (array.dtype.str, array.shape, array.tobytes())
        with self._lock:
            tensor = self._known.get(key)
            if tensor is None:
                tensor = self._known[key] = self._sent(array)
                if len(self._known) > _MOST_SMALL:
                    self._known.popitem(last=False)
            else:
                self._known.move_to_end(key)
            return tensor

    def _sent(self, array: Array) -> torch.Tensor:
        if self._stream is None:
            self._stream = torch.cuda.Stream(self._device)
        with torch.cuda.stream(self._stream):
            return to_tensor(array, self._device)  # waits for this stream

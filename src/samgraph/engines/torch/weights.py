"""Weights on a device, once for all programs that read the same array in the same dtype."""

import threading
import weakref
from typing import Any

import torch

from samgraph.engines.torch.tensors import to_tensor
from samgraph.graph.types import Array

_LOCK = threading.Lock()
_KEPT: "weakref.WeakValueDictionary[tuple[int, torch.device, torch.dtype], _Weight]"


class _Weight:
    """A tensor, and the array it was made from: as long as both live, the key is theirs."""

    __slots__ = ("__weakref__", "source", "tensor")

    def __init__(self, source: Array, tensor: torch.Tensor) -> None:
        self.source, self.tensor = source, tensor


_KEPT = weakref.WeakValueDictionary()


class Weights:
    """The weights of one program, by name; tensors are shared with other programs."""

    def __init__(
        self, arrays: dict[str, Array], half: dict[str, torch.dtype], device: torch.device
    ) -> None:
        self._held = {
            name: _on_device(array, device, half.get(name)) for name, array in arrays.items()
        }
        self.tensors = {name: held.tensor for name, held in self._held.items()}

    @property
    def bytes(self) -> int:
        """How much memory they take, shared or not."""
        return sum(tensor.nbytes for tensor in self.tensors.values())


def _on_device(array: Array, device: torch.device, half: torch.dtype | None) -> Any:
    kind = half or torch.float32
    key = (id(array), device, kind)
    with _LOCK:
        held = _KEPT.get(key)
        if held is not None and held.source is array:
            return held
    tensor = to_tensor(array, device)
    held = _Weight(array, tensor if half is None else tensor.to(half))
    with _LOCK:
        return _KEPT.setdefault(key, held)

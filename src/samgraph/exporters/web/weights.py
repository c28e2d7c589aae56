"""Weights in 16 bits, once for all graphs.

    weights.f16    halves, one after another

A graph refers to `weights.bin`, by ONNX's external data: the same numbers in 32 bits. The page
makes that of `weights.f16` when it loads: all devices compute with 32 bits.
"""

import hashlib
from typing import Any

import numpy as np
import onnx

LOCATION = "weights.bin"
SMALLEST = 1024  # bytes; smaller tensors stay inside
_ALIGNED = 16  # halves
# What rounding to 16 bits may change of a tensor, relative to its largest value.
_TOLERANCE = 2.0**-11


class HalfWeights:
    """Collects the large float tensors of ONNX models; equal tensors are stored once."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._count = 0
        self._offsets: dict[bytes, int] = {}

    def take(self, model: Any) -> None:
        """Move the large tensors of a model here; those that 16 bits cannot hold stay inside."""
        for tensor in model.graph.initializer:
            if tensor.data_type != onnx.TensorProto.FLOAT or len(tensor.raw_data) < SMALLEST:
                continue
            halves = to_halves(np.frombuffer(tensor.raw_data, "<f4"))
            if halves is None:
                continue
            tensor.ClearField("raw_data")
            tensor.data_location = onnx.TensorProto.EXTERNAL
            where = {"location": LOCATION, "offset": 4 * self._put(halves.tobytes())}
            for key, value in {**where, "length": 4 * halves.size}.items():
                entry = tensor.external_data.add()
                entry.key, entry.value = key, str(value)

    def data(self) -> bytes:
        """The whole file."""
        return b"".join(self._parts)

    def _put(self, data: bytes) -> int:
        """Where the halves begin, counted in halves."""
        digest = hashlib.sha256(data).digest()
        if digest not in self._offsets:
            padding = -self._count % _ALIGNED
            self._parts += [bytes(2 * padding), data]
            self._offsets[digest] = self._count + padding
            self._count += padding + len(data) // 2
        return self._offsets[digest]


def to_halves(values: np.ndarray[Any, np.dtype[np.float32]]) -> Any:
    """The values in 16 bits, little-endian; None where they would change by more than rounding."""
    with np.errstate(over="ignore"):
        halves = values.astype("<f2")
    largest = float(np.abs(values).max(initial=0.0))
    off = np.abs(halves.astype(np.float32) - values)
    is_close = bool(np.isfinite(halves).all() and (off <= _TOLERANCE * largest).all())
    return halves if is_close else None

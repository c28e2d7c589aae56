"""Weights in one file beside the models that share it, by ONNX's external data."""

import hashlib
from typing import Any

import onnx

SMALLEST = 1024  # bytes; smaller tensors stay inside
_PAGE, _LINE = 4096, 64


class ExternalWeights:
    """Collects the large initializers of models; equal ones are stored once."""

    def __init__(self, location: str) -> None:
        self._location = location
        self._parts: list[bytes] = []
        self._size = 0
        self._offsets: dict[bytes, int] = {}

    def take(self, model: Any) -> None:
        """Move the large initializers of a model here."""
        for tensor in model.graph.initializer:
            data: bytes = tensor.raw_data
            if len(data) < SMALLEST:
                continue
            offset = self._put(data)
            tensor.ClearField("raw_data")
            tensor.data_location = onnx.TensorProto.EXTERNAL
            for key, value in (
                ("location", self._location),
                ("offset", str(offset)),
                ("length", str(len(data))),
            ):
                entry = tensor.external_data.add()
                entry.key, entry.value = key, value

    def data(self) -> bytes:
        """The whole file."""
        return b"".join(self._parts)

    def _put(self, data: bytes) -> int:
        """The offset of the data; large tensors begin at a page, so that they can be mapped."""
        digest = hashlib.sha256(data).digest()
        if digest not in self._offsets:
            unit = _PAGE if len(data) >= 1 << 20 else _LINE
            padding = -self._size % unit
            self._parts += [bytes(padding), data]
            self._offsets[digest] = self._size + padding
            self._size += padding + len(data)
        return self._offsets[digest]

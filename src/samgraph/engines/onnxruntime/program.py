"""A compiled graph: a session of ONNX Runtime, and the model it was made of, for the cache."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any, TypeAlias

import numpy as np
import onnxruntime
from onnxruntime.capi import onnxruntime_pybind11_state as library

from samgraph.engines.onnx.emitter import ELEMENT_TYPES
from samgraph.engines.protocol import MemoryUsage
from samgraph.errors import EngineError
from samgraph.graph.types import Array, numpy_dtype

# The library's exceptions have no common base but Exception.
FAILURES: tuple[type[Exception], ...] = (
    RuntimeError,
    ValueError,
    *(
        item
        for item in vars(library).values()
        if isinstance(item, type) and issubclass(item, Exception)
    ),
)
_BF16 = numpy_dtype("bf16")
_SIZE = attrgetter("size")
MakeSession: TypeAlias = Callable[[bytes, bool], Any]  # of a model, with fused kernels or without


class OnnxRuntimeProgram:
    """One session; runs from several threads share its threads.

    Empty inputs run in a second session without fused kernels, made when it is needed: one of them
    (FusedMatMul) ends the process where a matrix has no rows.
    """

    def __init__(
        self, make: MakeSession, model: bytes, names: tuple[str, ...], weights: int
    ) -> None:
        self._make, self._model, self._names, self._weights = make, model, names, weights
        self._session, self._plain = make(model, True), None
        self._outputs = [value.name for value in self._session.get_outputs()]

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Array]:
        """Named inputs to named outputs, in new arrays."""
        arrays = {name: np.asarray(array, order="C") for name, array in inputs.items()}
        session = self._session
        if not all(map(_SIZE, arrays.values())):
            session = self._plain = self._plain or self._make(self._model, False)
        try:
            given = {name: _value(array) for name, array in arrays.items()}
            found = session.run_with_ort_values(self._outputs, given)
        except FAILURES as error:
            raise EngineError("ONNX Runtime could not run the graph", got=brief(error)) from error
        return {
            name: np.array(value.numpy()) for name, value in zip(self._names, found, strict=True)
        }

    def memory(self) -> MemoryUsage:
        """The weights, which the session copies once more."""
        return MemoryUsage(self._weights, len(self._model))

    def export(self) -> bytes | None:
        """The names of the outputs, the size of the weights, and the ONNX model."""
        head = "\n".join([str(self._weights), *self._names]).encode()
        return len(head).to_bytes(8, "little") + head + self._model


def read_export(data: memoryview) -> tuple[bytes, tuple[str, ...], int]:
    """Model, names and size of the weights from the bytes of `OnnxRuntimeProgram.export`."""
    length = int.from_bytes(data[:8], "little")
    try:
        weights, *names = bytes(data[8 : 8 + length]).decode().split("\n")
        return bytes(data[8 + length :]), tuple(names), int(weights)
    except ValueError as error:
        raise EngineError("a compiled graph is not whole", got=error) from error


def _value(array: Array) -> Any:
    """An array as the library's value, without a copy."""
    if array.dtype == _BF16:  # numpy has no bf16 that the library knows
        bits = array.view(np.uint16)
        make = onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type
        return make(bits, ELEMENT_TYPES["bf16"])
    return onnxruntime.OrtValue.ortvalue_from_numpy(array)


def brief(error: Exception) -> str:
    """The last line of an error's message."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else error.__class__.__name__

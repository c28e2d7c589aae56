"""An engine whose buffers are not arrays: what goes in and out of it is counted.

A buffer of this engine refuses to be read by numpy, so code that would need the host for its work
fails where it does.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from samgraph.engines import EngineOptions, find_engine
from samgraph.engines.buffers import DeviceImages, HostBuffers
from samgraph.graph.types import Array, DType
from samgraph.models.family import SegmentationModel
from samgraph.models.loading import load_model
from samgraph.runtime import CompileOptions
from tests.models.sam2.bench import config_of, known_weights


@dataclass(frozen=True, slots=True, eq=False)
class Remote:
    """An array somewhere else."""

    inside: Array

    @property
    def shape(self) -> tuple[int, ...]:
        return self.inside.shape

    @property
    def nbytes(self) -> int:
        return self.inside.nbytes

    def __len__(self) -> int:
        return len(self.inside)

    def __getitem__(self, key: Any) -> "Remote":
        return Remote(np.asarray(self.inside[key]))

    def __array__(self, *_: Any, **__: Any) -> Array:
        raise AssertionError("a buffer was read on the host")


class CountingBuffers:
    """Buffers that note what is uploaded and downloaded."""

    images: DeviceImages | None = None

    def __init__(self) -> None:
        self._host = HostBuffers()
        self.uploaded: list[tuple[tuple[int, ...], Any]] = []
        self.downloaded: list[tuple[int, ...]] = []

    def clear(self) -> None:
        """Start counting again."""
        self.uploaded, self.downloaded = [], []

    def owns(self, value: object) -> bool:
        return isinstance(value, Remote)

    def dtype(self, buffer: Any) -> DType | None:
        return self._host.dtype(buffer.inside)

    def fits(self, values: Sequence[Any], dtypes: Sequence[DType]) -> bool:
        pairs = zip(values, dtypes, strict=True)
        return all(self.owns(value) and self.dtype(value) == dtype for value, dtype in pairs)

    def upload(self, array: Array) -> Remote:
        self.uploaded.append((array.shape, array.dtype))
        return Remote(array)

    def download(self, buffer: Any) -> Array:
        self.downloaded.append(buffer.shape)
        array: Array = buffer.inside
        return array

    def zeros(self, shape: Sequence[int], dtype: DType) -> Remote:
        return Remote(self._host.zeros(shape, dtype))

    def write(self, target: Any, rows: Sequence[int], values: Any) -> None:
        self._host.write(target.inside, rows, values.inside)

    def concat(self, parts: Sequence[Any]) -> Remote:
        return Remote(self._host.concat([part.inside for part in parts]))

    def repeat(self, buffer: Any, count: int) -> Remote:
        return Remote(self._host.repeat(buffer.inside, count))

    def clip(self, buffer: Any, limit: float) -> Remote:
        return Remote(self._host.clip(buffer.inside, limit))


class CountingEngine:
    """The CPU engine behind such buffers."""

    def __init__(self) -> None:
        self._engine = find_engine("openvino")
        self.buffers = CountingBuffers()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def compile(self, graph: Any, weights: Any, options: EngineOptions) -> "CountingProgram":
        return CountingProgram(self._engine.compile(graph, weights, options))


class CountingProgram:
    """A program that takes and gives such buffers."""

    def __init__(self, program: Any) -> None:
        self._program = program

    def __getattr__(self, name: str) -> Any:
        return getattr(self._program, name)

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Remote]:
        found = self._program.run({name: buffer.inside for name, buffer in inputs.items()})
        return {name: Remote(array) for name, array in found.items()}


def counting_model() -> SegmentationModel:
    """The small test model at 128 pixels on the counting engine."""
    config = config_of({"config": "test"})
    options = CompileOptions(threads=2, cache=False)
    weights = known_weights(config, 100)
    model = load_model(weights, config=config.at_size(128), options=options)
    engine: Any = CountingEngine()
    session = model.session
    session._choice = replace(session._choice, engine=engine)
    session.buffers = model.buffers = engine.buffers
    return model

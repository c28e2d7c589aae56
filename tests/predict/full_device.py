"""A device with little memory: the CPU engine behind buffers that are counted while they live.

A run needs what its inputs and outputs take once more, as scratch memory, and a device may be told
to refuse a graph, or a size of buffers, whatever is free.
"""

import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from samgraph.engines import Device, find_engine
from samgraph.engines.buffers import DeviceImages, HostBuffers
from samgraph.errors import DeviceMemoryError
from samgraph.graph.types import Array, DType
from samgraph.models.family import SegmentationModel
from samgraph.models.loading import load_model
from samgraph.runtime import CompileOptions, Session
from tests.models.sam2.bench import config_of, known_weights

_PROGRAMS: dict[tuple[object, ...], Any] = {}  # the weights are always the same


class There:
    """An array on the device; views keep it alive."""

    def __init__(self, inside: Array, whole: "There | None" = None) -> None:
        self.inside, self._whole = inside, whole

    @property
    def shape(self) -> tuple[int, ...]:
        return self.inside.shape

    @property
    def nbytes(self) -> int:
        return self.inside.nbytes

    def __len__(self) -> int:
        return len(self.inside)

    def __getitem__(self, key: Any) -> "There":
        return There(np.asarray(self.inside[key]), self)

    def __array__(self, *_: Any, **__: Any) -> Array:
        raise AssertionError("a buffer was read on the host")


@dataclass
class SmallMemory:
    """How much is in use, of how much; and what is refused besides."""

    capacity: float = float("inf")
    refuses: Callable[[str, int], bool] = lambda graph, batch: False
    most_zeros: float = float("inf")  # rows of a buffer of zeros
    used: int = 0
    runs: list[tuple[str, int]] = field(default_factory=list)

    def check(self, needed: int, what: str) -> None:
        if self.used + needed > self.capacity:
            raise full(what)

    def made(self, array: Array) -> There:
        """A new buffer, counted until it is let go."""
        self.check(array.nbytes, "a buffer")
        there = There(array)
        self.used += array.nbytes
        weakref.finalize(there, self._gone, array.nbytes)
        return there

    def _gone(self, nbytes: int) -> None:
        self.used -= nbytes


def full(what: str) -> DeviceMemoryError:
    return DeviceMemoryError(f"the GPU has no memory left for {what}", got="a small device")


class SmallBuffers:
    """Buffers of the device."""

    images: DeviceImages | None = None

    def __init__(self, memory: SmallMemory) -> None:
        self._host, self._memory = HostBuffers(), memory

    def owns(self, value: object) -> bool:
        return isinstance(value, There)

    def dtype(self, buffer: Any) -> DType | None:
        return self._host.dtype(buffer.inside)

    def fits(self, values: Sequence[Any], dtypes: Sequence[DType]) -> bool:
        pairs = zip(values, dtypes, strict=True)
        return all(self.owns(value) and self.dtype(value) == dtype for value, dtype in pairs)

    def upload(self, array: Array) -> There:
        assert isinstance(array, np.ndarray)
        return self._memory.made(array)

    def download(self, buffer: Any) -> Array:
        array: Array = buffer.inside
        return array

    def zeros(self, shape: Sequence[int], dtype: DType) -> There:
        if shape[0] > self._memory.most_zeros:
            raise full("a buffer")
        return self._memory.made(self._host.zeros(shape, dtype))

    def write(self, target: Any, rows: Sequence[int], values: Any) -> None:
        self._host.write(target.inside, rows, values.inside)

    def concat(self, parts: Sequence[Any]) -> There:
        if len(parts) == 1:
            only: There = parts[0]
            return only
        return self._memory.made(self._host.concat([part.inside for part in parts]))

    def repeat(self, buffer: Any, count: int) -> There:
        return There(self._host.repeat(buffer.inside, count), buffer)

    def clip(self, buffer: Any, limit: float) -> There:
        return self._memory.made(self._host.clip(buffer.inside, limit))


class SmallEngine:
    """The CPU engine with such buffers."""

    caches_programs = False

    def __init__(self, memory: SmallMemory, build: Callable[[Any, Any], Any]) -> None:
        self._engine, self._memory, self._build = find_engine("openvino"), memory, build
        self.buffers = SmallBuffers(memory)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def build(self, graph: Any, weights: Any) -> "SmallProgram":
        """In place of `Session.build`: each graph is optimised and compiled once for all tests."""
        self._refuse(f"compile {graph.name}", 0)
        key = graph.name, *(str(value.type) for value in graph.inputs)
        if key not in _PROGRAMS:
            _PROGRAMS[key] = self._build(graph, weights)
        return SmallProgram(graph.name, _PROGRAMS[key], self)

    def _refuse(self, name: str, batch: int) -> None:
        if self._memory.refuses(name, batch):
            raise full(f"graph `{name}`")

    def run(self, name: str, program: Any, inputs: Mapping[str, There]) -> dict[str, There]:
        by_batch = inputs.get("frames") or inputs.get("points") or inputs.get("mask")
        batch = len(by_batch or next(iter(inputs.values())))
        self._memory.runs.append((name, batch))
        self._refuse(name, batch)
        found = program.run({key: np.asarray(x.inside) for key, x in inputs.items()})
        scratch = sum(x.nbytes for x in (*inputs.values(), *found.values()))
        self._memory.check(scratch, f"graph `{name}`")
        return {key: self._memory.made(array) for key, array in found.items()}


class SmallProgram:
    """A program of the device."""

    def __init__(self, name: str, program: Any, engine: SmallEngine) -> None:
        self._name, self._program, self._engine = name, program, engine

    def __getattr__(self, name: str) -> Any:
        return getattr(self._program, name)

    def run(self, inputs: Mapping[str, There]) -> dict[str, There]:
        return self._engine.run(self._name, self._program, inputs)


def small_device_model(memory: SmallMemory) -> SegmentationModel:
    """The small test model at 128 pixels on such a device, which it takes for a GPU."""
    config = config_of({"config": "test"})
    weights = known_weights(config, 100)
    options = CompileOptions(threads=2)
    model = load_model(weights, config=config.at_size(128), device="cpu", options=options)
    session: Any = model.session
    engine: Any = SmallEngine(memory, Session("cpu", options).build)
    session._choice = replace(session._choice, engine=engine, device=Device("cuda"))
    session.buffers = model.buffers = engine.buffers
    session.build = engine.build
    return model

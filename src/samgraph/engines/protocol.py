"""The engine protocol: an engine compiles a graph with its weights into a program.

An engine is one folder with an object called `engine`, which declares its devices and precisions,
its pipeline of passes, and the ops and dtypes it supports. Nothing outside its folder names it,
except for the table here.
"""

import importlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from samgraph.engines.buffers import Buffer, Buffers
from samgraph.engines.devices import Device
from samgraph.errors import EngineError, OptionError
from samgraph.graph.graph import Graph, Node
from samgraph.graph.types import Array, DType
from samgraph.passes.pipeline import Precision as Precision
from samgraph.passes.pipeline import Step

# On a CPU: the memory of one object at 1024 pixels; a batch of four takes a sixth longer.
CPU_ATTENTION_TOKENS = 1 << 15
# Larger batches are no faster on a CPU, and take 60 MB per object at 1024 pixels.
CPU_OBJECTS_AT_ONCE = 4


@dataclass(frozen=True, slots=True)
class Listing:
    """An engine in the table."""

    folder: str
    extra: str | None = None  # the pip extra with its library; None if there is none
    candidate_for: tuple[str, ...] = ()  # kinds of device, when no engine is given
    by_name: tuple[str, ...] = ()  # more of them, when the device is given; never for `auto`

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of device that it is taken for."""
        return (*self.candidate_for, *self.by_name)

    @property
    def hint(self) -> str:
        """The command that installs its library."""
        wanted = f"samgraph[{self.extra}]" if self.extra else "--force-reinstall samgraph"
        return f"pip install {wanted}"


# In order of preference: `auto` takes the first candidate for a device of this machine.
_FOLDERS = {
    "reference": Listing("samgraph.engines.reference"),
    "torch": Listing(
        "samgraph.engines.torch", extra="torch", candidate_for=("cuda",), by_name=("mps", "xpu")
    ),
    "openvino": Listing(
        "samgraph.engines.openvino", candidate_for=("cpu",), by_name=("gpu", "npu")
    ),
    "onnxruntime": Listing("samgraph.engines.onnxruntime", extra="onnx"),
}


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """Options of a compilation."""

    precision: Precision = "fp32"
    threads: int = 1


@dataclass(frozen=True, slots=True)
class Decision:
    """The options an engine uses on this machine, of those requested."""

    options: EngineOptions
    why: str | None = None  # the reason, where the values do not explain themselves


@dataclass(frozen=True, slots=True)
class MemoryUsage:
    """Bytes of a program: its weights, and the growth of the process by compiling it."""

    weights: int
    compiled: int


@dataclass(frozen=True, slots=True)
class DeviceInfo:
    """A device that an engine finds on this machine."""

    device: Device
    name: str  # as its maker calls it
    precisions: tuple[Precision, ...]  # the preferred first
    memory_bytes: int | None = None
    note: str | None = None  # what else to know, in a few words


@runtime_checkable
class DeviceFinder(Protocol):
    """An engine that can say which devices it finds here."""

    def found(self, memory: Path | None) -> tuple[DeviceInfo, ...]:
        """Its devices on this machine; `memory` as of `Engine.decide`."""
        ...


class Program(Protocol):
    """A compiled graph. `run` may be called from several threads at once."""

    def run(self, inputs: Mapping[str, Buffer]) -> dict[str, Buffer]:
        """Named inputs to named outputs, which the caller owns; the inputs are checked already."""
        ...

    def memory(self) -> MemoryUsage:
        """The memory of the program."""
        ...

    def export(self) -> bytes | None:
        """The compiled program as bytes for a cache; None if there is nothing to cache."""
        ...


class Engine(Protocol):
    """Compiles graphs for its devices."""

    @property
    def name(self) -> str:
        """Its name for users."""
        ...

    @property
    def devices(self) -> Mapping[str, tuple[Precision, ...]]:
        """The kinds of device it runs on, each with its precisions; the preferred first."""
        ...

    @property
    def passes(self) -> tuple[Step, ...]:
        """Its pipeline: shared passes and its own, in order."""
        ...

    @property
    def folds_params(self) -> bool:
        """Whether nodes that depend on weights only are folded before compiling (`fold_params`)."""
        ...

    @property
    def caches_programs(self) -> bool:
        """Whether compiled programs are cached on disk."""
        ...

    @property
    def ops(self) -> frozenset[str]:
        """The ops it has a lowering rule for; its pipeline removes the others."""
        ...

    @property
    def dtypes(self) -> frozenset[DType]:
        """The dtypes that its inputs, outputs and values may have."""
        ...

    def on(self, device: Device) -> "Engine":
        """The engine for a device it lists; `EngineError` if the device cannot be used."""
        ...

    def decide(self, wanted: EngineOptions, memory: Path | None) -> Decision:
        """The options to use on this machine, of those `wanted`.

        `memory` is a file that caches slow decisions; None for no caching.
        """
        ...

    @property
    def exact_precision(self) -> Precision:
        """The precision for graphs that lose masks in a lower one."""
        ...

    def precision_of(self, node: Node, precision: Precision) -> Precision:
        """The precision of a node, given that of the program."""
        ...

    @property
    def buffers(self) -> Buffers:
        """The operations on its inputs and outputs."""
        ...

    @property
    def storage(self) -> frozenset[DType]:
        """Dtypes of inputs that are cast before any computation."""
        ...

    @property
    def attention_tokens(self) -> int | None:
        """The number of memory tokens that saturates the device; None for no limit."""
        ...

    @property
    def objects_at_once(self) -> int:
        """The largest batch of objects that pays."""
        ...

    def version(self) -> str:
        """What a compiled program depends on besides the graph: versions of library and machine."""
        ...

    def compile(
        self, graph: Graph, weights: Mapping[str, Array], options: EngineOptions
    ) -> Program:
        """Compile a graph that has only ops of this engine."""
        ...

    def restore(self, data: memoryview, options: EngineOptions) -> Program:
        """The program that `Program.export` gave, without compiling."""
        ...


def engine_names() -> tuple[str, ...]:
    """The names of all engines, whether or not they can run here."""
    return tuple(_FOLDERS)


def candidates(kind: str | None = None) -> Iterator[tuple[str, str]]:
    """Pairs of engine and kind of device, the preferred first; only of `kind` if given."""
    for name, listing in _FOLDERS.items():
        for found in listing.candidate_for if kind is None else listing.kinds:
            if kind in (None, found):
                yield name, found


def find_engine(name: str) -> Engine:
    """The engine called `name`, imported now."""
    if name not in _FOLDERS:
        raise OptionError(f"there is no engine `{name}`", expected=", ".join(_FOLDERS))
    listing = _FOLDERS[name]
    try:
        module = importlib.import_module(listing.folder)
    except ImportError as error:
        text = f"engine `{name}` cannot be loaded"
        raise EngineError(text, got=error, hint=listing.hint) from error
    engine: Engine = module.engine
    return engine

"""What an engine is: it compiles a graph with its weights into a program that runs.

An engine is one folder with an object called `engine`. It declares everything the rest needs to
know about it: devices and precisions, its pipeline of passes, the ops and dtypes it has. Nothing
outside its folder names it, but for the table here.
"""

import importlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from samgraph.engines.buffers import Buffer, Buffers
from samgraph.engines.devices import Device
from samgraph.errors import EngineError, OptionError
from samgraph.graph.graph import Graph, Node
from samgraph.graph.types import Array, DType
from samgraph.passes.pipeline import Precision as Precision
from samgraph.passes.pipeline import Step


@dataclass(frozen=True, slots=True)
class Listing:
    """An engine in the table."""

    folder: str
    extra: str | None = None  # of pip, that brings its library; None where nothing is needed
    candidate_for: tuple[str, ...] = ()  # kinds of device, when no engine is named

    @property
    def hint(self) -> str:
        """What brings its library."""
        wanted = f"samgraph[{self.extra}]" if self.extra else "--force-reinstall samgraph"
        return f"pip install {wanted}"


# In order of preference: `auto` takes the first that is a candidate for a device that is here.
_FOLDERS = {
    "reference": Listing("samgraph.engines.reference"),
    "torch": Listing("samgraph.engines.torch", extra="torch", candidate_for=("cuda",)),
    "openvino": Listing("samgraph.engines.openvino", candidate_for=("cpu",)),
}


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """What an engine is told when it compiles."""

    precision: Precision = "fp32"
    threads: int = 1


@dataclass(frozen=True, slots=True)
class Decision:
    """What an engine makes of the options that were asked for, on this machine."""

    options: EngineOptions
    why: str | None = None  # where their values do not say it all


@dataclass(frozen=True, slots=True)
class MemoryUsage:
    """Bytes a program holds: its weights, and how much the process grew by compiling it."""

    weights: int
    compiled: int


class Program(Protocol):
    """A compiled graph. `run` may be called from several threads at once."""

    def run(self, inputs: Mapping[str, Buffer]) -> dict[str, Buffer]:
        """Named inputs to named outputs, which are the caller's own; the inputs were checked."""
        ...

    def memory(self) -> MemoryUsage:
        """What the program holds."""
        ...

    def export(self) -> bytes | None:
        """The compiled program as bytes for a cache; None where there is nothing to keep."""
        ...


class Engine(Protocol):
    """A place where graphs run."""

    @property
    def name(self) -> str:
        """What users call it."""
        ...

    @property
    def devices(self) -> Mapping[str, tuple[Precision, ...]]:
        """The kinds of device it runs on, each with its precisions; the preferred ones first."""
        ...

    @property
    def passes(self) -> tuple[Step, ...]:
        """The passes it wants, shared ones and its own, in order."""
        ...

    @property
    def folds_params(self) -> bool:
        """Whether what depends on weights only is computed before it compiles (`fold_params`)."""
        ...

    @property
    def caches_programs(self) -> bool:
        """Whether a compiled program is worth keeping on disk."""
        ...

    @property
    def ops(self) -> frozenset[str]:
        """The ops it has a rule for; its pipeline removes the others."""
        ...

    @property
    def dtypes(self) -> frozenset[DType]:
        """The dtypes that its inputs, outputs and values may have."""
        ...

    def on(self, device: Device) -> "Engine":
        """The engine for a device it lists; `EngineError` where it cannot use it here."""
        ...

    def decide(self, wanted: EngineOptions, memory: Path | None) -> Decision:
        """What of `wanted` is possible and worth it on this machine.

        `memory` is a file for answers that take long to find; None where nothing may be kept.
        """
        ...

    @property
    def exact_precision(self) -> Precision:
        """The precision for graphs that lose masks in a lower one."""
        ...

    def precision_of(self, node: Node, precision: Precision) -> Precision:
        """In which precision a node is computed, in a mode."""
        ...

    @property
    def buffers(self) -> Buffers:
        """What its graphs take and give, and how they get there."""
        ...

    @property
    def storage(self) -> frozenset[DType]:
        """Dtypes that inputs may be kept in and are cast from, though nothing computes in them."""
        ...

    @property
    def attention_tokens(self) -> int | None:
        """Memory tokens that keep the device busy: more in one run gain nothing. None: no limit."""
        ...

    @property
    def objects_at_once(self) -> int:
        """The most objects that are worth running together."""
        ...

    def version(self) -> str:
        """What a compiled program depends on besides the graph: library and machine."""
        ...

    def compile(
        self, graph: Graph, weights: Mapping[str, Array], options: EngineOptions
    ) -> Program:
        """Make a program of a graph that holds only ops this engine has."""
        ...

    def restore(self, data: memoryview, options: EngineOptions) -> Program:
        """The program that `Program.export` gave, without compiling."""
        ...


def engine_names() -> tuple[str, ...]:
    """The engines that exist, whether or not they can run here."""
    return tuple(_FOLDERS)


def candidates(kind: str | None = None) -> Iterator[tuple[str, str]]:
    """Engine and kind of device for each way to run, the preferred first; of one kind if asked."""
    for name, listing in _FOLDERS.items():
        for found in listing.candidate_for:
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

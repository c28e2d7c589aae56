"""What an engine is: it compiles a graph with its weights into a program that runs.

An engine is one folder with an object called `engine`. It declares the ops it lacks, each with
a decomposition into ops it has; nothing is discovered at run time.
"""

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

from samgraph.engines.buffers import Buffer, Buffers
from samgraph.errors import EngineError, OptionError
from samgraph.graph.graph import Graph, Node, Value
from samgraph.graph.types import Array, DType
from samgraph.passes.rewriter import Rewriter

Precision: TypeAlias = Literal["fp32", "tf32", "bf16", "fp16"]
Decomposition: TypeAlias = Callable[[Rewriter, Node], Value]

_FOLDERS = {
    "reference": "samgraph.engines.reference",
    "openvino": "samgraph.engines.openvino",
    "torch": "samgraph.engines.torch",
}


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """What an engine is told when it compiles."""

    precision: Precision = "fp32"
    threads: int = 1


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
    def dtypes(self) -> frozenset[DType]:
        """The dtypes that its inputs, outputs and values may have."""
        ...

    @property
    def lacks(self) -> Mapping[str, Decomposition]:
        """The ops it does not have, each with what to put in its place."""
        ...

    @property
    def buffers(self) -> Buffers:
        """What its graphs take and give, and how they get there."""
        ...

    @property
    def storage(self) -> frozenset[DType]:
        """Dtypes that inputs may be kept in and are cast from, though nothing computes in them."""
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


def find_engine(name: str) -> Engine:
    """The engine called `name`, imported now."""
    if name not in _FOLDERS:
        raise OptionError(f"there is no engine `{name}`", expected=", ".join(_FOLDERS))
    try:
        module = importlib.import_module(_FOLDERS[name])
    except ImportError as error:
        raise EngineError(
            f"engine `{name}` cannot be loaded", got=error, hint=f"pip install samgraph[{name}]"
        ) from error
    engine: Engine = module.engine
    return engine

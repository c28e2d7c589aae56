"""The reference engine: every node by its numpy reference, in order. Slow, and right."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from samgraph.engines.buffers import HOST_BUFFERS, HostBuffers
from samgraph.engines.devices import Device
from samgraph.engines.protocol import (
    CPU_ATTENTION_TOKENS,
    CPU_OBJECTS_AT_ONCE,
    Decision,
    EngineOptions,
    MemoryUsage,
)
from samgraph.errors import EngineError
from samgraph.graph.binding import bind
from samgraph.graph.evaluation import evaluate_graph
from samgraph.graph.graph import Graph, Node
from samgraph.graph.registry import OPS
from samgraph.graph.types import DTYPES, Array, DType
from samgraph.passes.pipeline import Precision, Step


@dataclass(frozen=True, slots=True)
class ReferenceProgram:
    """A graph and its weights; a run evaluates the nodes in order."""

    graph: Graph
    weights: Mapping[str, Array]

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Array]:
        """Named inputs to named outputs."""
        bindings = bind(self.graph.inputs, {name: x.shape for name, x in inputs.items()})
        outputs = evaluate_graph(self.graph, {**self.weights, **inputs}, bindings)
        return {name: np.array(array, order="C") for name, array in outputs.items()}

    def memory(self) -> MemoryUsage:
        """The weights; nothing is compiled."""
        return MemoryUsage(sum(array.nbytes for array in self.weights.values()), 0)

    def export(self) -> bytes | None:
        """None: nothing to cache."""
        return None


@dataclass(frozen=True, slots=True)
class ReferenceEngine:
    """Numpy, any dtype and size, no compilation."""

    name: str = "reference"
    folds_params: bool = False
    caches_programs: bool = False
    dtypes: frozenset[DType] = frozenset(DTYPES)
    passes: tuple[Step, ...] = ()

    @property
    def devices(self) -> Mapping[str, tuple[Precision, ...]]:
        """The CPU, in the graph's own dtypes."""
        return {"cpu": ("fp32",)}

    @property
    def ops(self) -> frozenset[str]:
        """All ops."""
        return frozenset(OPS)

    def on(self, device: Device) -> "ReferenceEngine":
        """Itself: there is one CPU."""
        return self

    def decide(self, wanted: EngineOptions, memory: Path | None) -> Decision:
        """One thread, whatever is wanted."""
        return Decision(EngineOptions("fp32", 1), "numpy, node by node: slow")

    @property
    def exact_precision(self) -> Precision:
        """Float32."""
        return "fp32"

    def precision_of(self, node: Node, precision: Precision) -> Precision:
        """The graph's own."""
        return "fp32"

    @property
    def buffers(self) -> HostBuffers:
        """Numpy arrays."""
        return HOST_BUFFERS

    @property
    def storage(self) -> frozenset[DType]:
        """Empty: it computes in every dtype."""
        return frozenset()

    @property
    def attention_tokens(self) -> int:
        """As the CPU engine."""
        return CPU_ATTENTION_TOKENS

    @property
    def objects_at_once(self) -> int:
        """As the CPU engine."""
        return CPU_OBJECTS_AT_ONCE

    def version(self) -> str:
        """The version of numpy."""
        return np.__version__

    def compile(
        self, graph: Graph, weights: Mapping[str, Array], options: EngineOptions
    ) -> ReferenceProgram:
        """A program that refers to graph and weights; nothing is compiled."""
        if options.precision != "fp32":
            raise EngineError("the reference engine computes in the graph's own dtypes only")
        return ReferenceProgram(graph, dict(weights))

    def restore(self, data: memoryview, options: EngineOptions) -> ReferenceProgram:
        """Raises: there is nothing to restore."""
        raise EngineError("the reference engine keeps nothing in a cache")


engine = ReferenceEngine()

"""The reference engine: every node by its numpy definition, in order. Slow, and right."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from samgraph.engines.buffers import HOST_BUFFERS, HostBuffers
from samgraph.engines.protocol import Decomposition, EngineOptions, MemoryUsage
from samgraph.errors import EngineError
from samgraph.graph.binding import bind
from samgraph.graph.evaluation import evaluate_graph
from samgraph.graph.graph import Graph
from samgraph.graph.types import DTYPES, Array, DType


@dataclass(frozen=True, slots=True)
class ReferenceProgram:
    """A graph and its weights; running walks the nodes."""

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
        """Nothing to keep."""
        return None


@dataclass(frozen=True, slots=True)
class ReferenceEngine:
    """Numpy, any dtype and size, no compilation."""

    name: str = "reference"
    dtypes: frozenset[DType] = frozenset(DTYPES)

    @property
    def lacks(self) -> Mapping[str, Decomposition]:
        """Nothing: the references are the ops."""
        return {}

    @property
    def buffers(self) -> HostBuffers:
        """Numpy arrays."""
        return HOST_BUFFERS

    @property
    def storage(self) -> frozenset[DType]:
        """None beside those it computes in."""
        return frozenset()

    @property
    def attention_tokens(self) -> int:
        """What one object remembers at 1024 pixels: four in one run take a sixth longer."""
        return 1 << 15

    @property
    def objects_at_once(self) -> int:
        """More are no faster on a CPU, and take 60 MB each at 1024 pixels."""
        return 4

    def version(self) -> str:
        """The version of numpy."""
        return np.__version__

    def compile(
        self, graph: Graph, weights: Mapping[str, Array], options: EngineOptions
    ) -> ReferenceProgram:
        """Nothing to do but to keep graph and weights."""
        if options.precision != "fp32":
            raise EngineError("the reference engine computes in the graph's own dtypes only")
        return ReferenceProgram(graph, dict(weights))

    def restore(self, data: memoryview, options: EngineOptions) -> ReferenceProgram:
        """Never called: there is nothing to restore."""
        raise EngineError("the reference engine keeps nothing in a cache")


engine = ReferenceEngine()

"""The cost of a graph: ops, parameters, multiply-adds, and bytes of weights and values."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from samgraph.graph import Graph
from samgraph.graph.dims import Dim, evaluate, product
from samgraph.graph.registry import find_op
from samgraph.graph.types import TensorType, numpy_dtype

# One image, one prompt or object, and a full memory: seven frames and sixteen pointers.
TYPICAL: dict[str, int] = {"B": 1, "N": 1, "P": 1, "F": 7, "Q": 16}


@dataclass(frozen=True, slots=True)
class Statistics:
    """The cost of running a graph once."""

    name: str
    ops: dict[str, int]
    parameters: int
    multiply_adds: int
    weight_bytes: int
    value_bytes: int

    @property
    def nodes(self) -> int:
        """The number of nodes without constants."""
        return sum(count for op, count in self.ops.items() if op != "constant")


def measure(graph: Graph, sizes: Mapping[str, int] | None = None) -> Statistics:
    """The cost of a graph, with `sizes` as the values of its symbols."""
    bindings = {**TYPICAL, **(sizes or {})}
    work = 0
    for node in graph:
        count = find_op(node.op).work
        if count is not None:
            types = [value.type for value in node.inputs]
            work += evaluate(count(node.result.type, *types, **node.attributes), bindings)
    params = [value.type for value in graph.params]
    values = [node.result.type for node in graph if node.op != "constant"]
    return Statistics(
        graph.name,
        dict(Counter(node.op for node in graph).most_common()),
        sum(evaluate(product(type.shape), bindings) for type in params),
        work,
        sum(_bytes(type, bindings) for type in params),
        sum(_bytes(type, bindings) for type in values),
    )


def _bytes(type: TensorType, bindings: Mapping[str, int]) -> int:
    elements: Dim = product(type.shape)
    return evaluate(elements, bindings) * numpy_dtype(type.dtype).itemsize

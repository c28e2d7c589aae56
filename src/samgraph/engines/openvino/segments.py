"""Cut a graph where its nodes change how they run: in a model of OpenVINO, or natively.

Where some nodes run in native kernels, the graph becomes several that run one after another.
Constants go with each segment that reads them.
"""

from dataclasses import dataclass
from typing import Literal

from samgraph.engines.native import NATIVE_OPS
from samgraph.graph.binding import solvable_symbols
from samgraph.graph.dims import Expr
from samgraph.graph.graph import Graph, Node, Value, dims_of

Kind = Literal["model", "native"]


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of a graph that runs in one way."""

    graph: Graph
    kind: Kind


def cut(graph: Graph, native: frozenset[str] = NATIVE_OPS) -> list[Segment]:
    """The segments in the order they run; the ops in `native` run natively."""
    kinds, positions = _positions(graph, native)
    segments = []
    for number, kind in enumerate(kinds):
        nodes = [node for node in graph if positions.get(node.result.name) == number]
        part = _segment(graph, number, nodes, positions)
        if part.outputs:
            segments.append(Segment(part, kind))
    return segments


def _positions(graph: Graph, native: frozenset[str]) -> tuple[list[Kind], dict[str, int]]:
    """The kinds of all segments, and the segment of each node but constants.

    A node stands in the first segment of its kind that does not run before its inputs.
    """
    kinds: list[Kind] = ["model"]
    positions: dict[str, int] = {}
    for node in graph:
        if node.op == "constant":
            continue
        kind: Kind = "native" if node.op in native else "model"
        first = max((positions[v.name] for v in node.inputs if v.name in positions), default=0)
        later = (i for i in range(first, len(kinds)) if kinds[i] == kind)
        positions[node.result.name] = position = next(later, len(kinds))
        if position == len(kinds):
            kinds.append(kind)
    return kinds, positions


def _segment(graph: Graph, number: int, nodes: list[Node], positions: dict[str, int]) -> Graph:
    later = [node for node in graph if positions.get(node.result.name, 0) > number]
    wanted = {value.name for node in later for value in node.inputs}
    wanted |= {value.name for _, value in graph.outputs}
    results = [node.result for node in nodes if node.result.name in wanted]
    if number == 0:  # an output may be a param or a constant
        results += [value for _, value in graph.outputs if _is_fixed(graph, value)]
    inside = {node.result.name for node in nodes}
    read = dict.fromkeys(value for node in nodes for value in node.inputs)
    outside = [v for v in dict.fromkeys([*read, *results]) if v.name not in inside]
    params = {value.name for value in graph.params}
    producers = graph.producers()
    constants = [producers[v.name] for v in outside if _is_constant(graph, v)]
    inputs = [v for v in outside if v.name not in params and not _is_constant(graph, v)]
    return Graph(
        f"{graph.name}.{number}",
        (*inputs, *_binding(graph, nodes, inputs)),
        tuple(value for value in outside if value.name in params),
        (*constants, *nodes),
        tuple((value.name, value) for value in dict.fromkeys(results)),
    )


def _binding(graph: Graph, nodes: list[Node], inputs: list[Value]) -> list[Value]:
    """Inputs of the whole graph that a segment needs only for the symbols they bind."""
    found = [value.type.symbols for value in inputs]
    for node in nodes:
        dims = [dim for value in node.attributes.values() for dim in dims_of(value)]
        found.append(node.result.type.symbols)
        found += [dim.symbols for dim in dims if isinstance(dim, Expr)]
    if frozenset().union(*found) <= solvable_symbols(inputs):
        return []
    return [value for value in graph.inputs if value.type.symbols and value not in inputs]


def _is_fixed(graph: Graph, value: Value) -> bool:
    return value in graph.params or _is_constant(graph, value)


def _is_constant(graph: Graph, value: Value) -> bool:
    node = graph.producers().get(value.name)
    return node is not None and node.op == "constant"

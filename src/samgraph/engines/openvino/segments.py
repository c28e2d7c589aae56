"""Cut a graph where its nodes change between the chosen precision and float32.

OpenVINO sets the precision for a whole model. Where some nodes are marked `exact` and the mode is
bf16, the graph is cut into segments that run one after another: even segments in the mode's
precision, odd segments in float32. Constants are duplicated in each segment that reads them.
"""

from dataclasses import dataclass

from samgraph.graph.binding import solvable_symbols
from samgraph.graph.dims import Expr
from samgraph.graph.graph import Graph, Node, Value, dims_of


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of a graph that runs in one precision."""

    graph: Graph
    exact: bool


def whole(graph: Graph) -> Segment:
    """The graph as one exact segment, its outputs named after their values."""
    values = dict.fromkeys(value for _, value in graph.outputs)
    outputs = tuple((value.name, value) for value in values)
    return Segment(Graph(graph.name, graph.inputs, graph.params, graph.nodes, outputs), True)


def cut(graph: Graph) -> list[Segment]:
    """The segments in the order they run."""
    number_of = _number_nodes(graph)
    segments = []
    for number in range(max(number_of.values(), default=0) + 1):
        nodes = [node for node in graph if number_of.get(node.result.name) == number]
        part = _segment(graph, number, nodes, number_of)
        if part.outputs:
            segments.append(Segment(part, number % 2 == 1))
    return segments


def _number_nodes(graph: Graph) -> dict[str, int]:
    """The segment of each node but constants: odd for exact nodes, even for others."""
    number_of: dict[str, int] = {}
    for node in graph:
        if node.op != "constant":
            number = max((number_of[v.name] for v in node.inputs if v.name in number_of), default=0)
            number_of[node.result.name] = number + (number % 2 != int(node.exact))
    return number_of


def _segment(graph: Graph, number: int, nodes: list[Node], number_of: dict[str, int]) -> Graph:
    later = [node for node in graph if number_of.get(node.result.name, 0) > number]
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

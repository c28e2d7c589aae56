"""Cut a graph where its nodes change between the chosen precision and float32.

OpenVINO sets the precision for a whole model. Where some nodes are marked `exact` and the mode
is bf16, the graph becomes several that run one after another: the even ones in the mode's
precision, the odd ones in float32.
"""

from dataclasses import dataclass

from samgraph.graph.graph import Graph, Node, Value


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
    places = _places(graph)
    last = max(places.values(), default=0)
    groups: list[list[Node]] = [[] for _ in range(last + 1)]
    for node in graph:
        groups[places[node.result.name]].append(node)
    made = {node.result.name: places[node.result.name] for node in graph}
    segments = []
    for number, nodes in enumerate(groups):
        if nodes or last == 0:
            segments.append(_segment(graph, number, nodes, made))
    return segments


def _places(graph: Graph) -> dict[str, int]:
    """The segment of each node: exact ones odd, others even, never before an input."""
    places: dict[str, int] = {}
    constants = {node.result.name for node in graph if node.op == "constant"}
    for node in graph:
        earliest = [places[v.name] for v in node.inputs if v.name in places]
        place = max(earliest, default=0)
        places[node.result.name] = place + (place % 2 != int(node.exact))
        if node.op == "constant":
            places[node.result.name] = 0
    return {name: 0 if name in constants else place for name, place in places.items()}


def _segment(graph: Graph, number: int, nodes: list[Node], made: dict[str, int]) -> Segment:
    inside = {node.result.name for node in nodes}
    producers = graph.producers()
    read = [value for node in nodes for value in node.inputs if value.name not in inside]
    constants = [producers[v.name] for v in dict.fromkeys(read) if _is_constant(graph, v)]
    params = {value.name for value in graph.params}
    outside = [v for v in dict.fromkeys(read) if not _is_constant(graph, v)]
    if number == 0:  # an output may be a param itself
        outside += [v for _, v in graph.outputs if v.name in params and v not in outside]
    later = {v.name for node in graph if made[node.result.name] > number for v in node.inputs}
    finals = {value.name for _, value in graph.outputs}
    candidates = [node.result for node in nodes] + [v for v in outside if v.name in params]
    crossing = [v for v in candidates if v.name in finals or (v.name in later and v.name in inside)]
    part = Graph(
        f"{graph.name}.{number}",
        tuple(value for value in outside if value.name not in params),
        tuple(value for value in outside if value.name in params),
        (*constants, *nodes),
        tuple((value.name, value) for value in crossing),
    )
    return Segment(part, number % 2 == 1)


def _is_constant(graph: Graph, value: Value) -> bool:
    node = graph.producers().get(value.name)
    return node is not None and node.op == "constant"

"""Linear layers for the engine's passes: their readers and their weights."""

from dataclasses import dataclass

from samgraph.graph.graph import Graph, Node, Value
from samgraph.passes.rewriter import Rewriter

Readers = dict[str, list[Node | None]]
LAYERS = ("linear", "fused_linear")


@dataclass(frozen=True, slots=True)
class Layer:
    """A linear layer of `x`: a node, or some columns of one; all values of the old graph."""

    x: Value
    node: Node
    start: int
    end: int

    def weights(self, rewriter: Rewriter) -> tuple[Value, Value]:
        """Weight [out, in] and bias [out] of these columns, in the new graph."""
        weight, bias = (rewriter.new(value) for value in self.node.inputs[1:3])
        if (self.start, self.end) == (0, width(self.node.result)):
            return weight, bias
        ins = width(weight)
        part = rewriter.emit(
            "slice", weight, starts=(self.start, 0), ends=(self.end, ins), steps=(1, 1)
        )
        return part, rewriter.emit(
            "slice", bias, starts=(self.start,), ends=(self.end,), steps=(1,)
        )


class Search:
    """Producers and readers of the values of a graph."""

    def __init__(self, graph: Graph) -> None:
        self.made, self.readers = graph.producers(), graph_readers(graph)
        self.weights = weight_values(graph)

    def maker(self, value: Value, *ops: str) -> Node | None:
        """The node of one of these ops that makes a value."""
        node = self.made.get(value.name)
        return node if node is not None and node.op in ops else None

    def only(self, value: Value, *ops: str) -> Node | None:
        """As `maker`, where the value has a single reader."""
        return self.maker(value, *ops) if len(self.readers.get(value.name, ())) == 1 else None

    def layer(self, value: Value) -> Layer | None:
        """The plain linear layer, with a bias and constant weights, that makes a value."""
        node, start = self.made.get(value.name), 0
        if node is not None and node.op == "slice" and takes_columns(node):
            start = int(str(node.attributes["starts"][-1]))  # type: ignore[index]  # a tuple
            node = self.made.get(node.inputs[0].name)
        if node is None or node.op != "linear" or len(node.inputs) != 3:
            return None
        plain = node.attributes.get("activation", "none") == "none"
        fixed = all(weight.name in self.weights for weight in node.inputs[1:])
        if not plain or not fixed or node.exact:
            return None
        return Layer(node.inputs[0], node, start, start + width(value))


def graph_readers(graph: Graph) -> Readers:
    """The readers of each value; None for an output of the graph."""
    readers: Readers = {}
    for node in graph:
        for value in node.inputs:
            readers.setdefault(value.name, []).append(node)
    for _, value in graph.outputs:
        readers.setdefault(value.name, []).append(None)
    return readers


def weight_values(graph: Graph) -> set[str]:
    """The names of everything computed from params and constants alone."""
    known = {value.name for value in graph.params}
    for node in graph:
        if all(value.name in known for value in node.inputs):
            known.add(node.result.name)
    return known


def width(value: Value, axis: int = -1) -> int:
    """A length that is known, the number of channels by default."""
    return int(str(value.type.shape[axis]))


def takes_columns(node: Node) -> bool:
    """Whether a slice takes whole rows, some columns of each."""
    steps = node.attributes["steps"]
    same = node.result.type.shape[:-1] == node.inputs[0].type.shape[:-1]
    return same and steps == (1,) * node.result.type.rank

"""The rewriter of passes: copies a graph node by node, with replacements."""

from collections.abc import Callable, Container, Iterable, Mapping
from operator import is_
from typing import TypeVar

import numpy as np

from samgraph.graph.graph import Attribute, Graph, Literal, Node, Value
from samgraph.graph.registry import infer
from samgraph.graph.types import Array, DType, numpy_dtype

Outputs = tuple[tuple[str, Value], ...]
Match = TypeVar("Match")


class Rewriter:
    """Builds the graph that a pass returns.

    Old values are looked up through `new`, so that all readers of a replaced value read its
    replacement.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._nodes: list[Node] = []
        self._made: dict[str, Node] = {}
        self._moved: dict[str, Value] = {}
        self._count = 0

    def new(self, old: Value) -> Value:
        """The new value for a value of the old graph."""
        return self._moved.get(old.name, old)

    def maker(self, value: Value) -> Node | None:
        """The node that produces a value of the new graph; None for inputs and params."""
        return self._made.get(value.name)

    def constant_of(self, value: Value) -> Array | None:
        """The array of a new value that is a constant."""
        node = self.maker(value)
        return node.array() if node is not None and node.op == "constant" else None

    def emit(self, op: str, *inputs: Value, exact: bool = False, **attributes: Attribute) -> Value:
        """Append a new node, whose inputs are values of the new graph."""
        type = infer(op, tuple(value.type for value in inputs), attributes)
        self._count += 1  # no declared name has a `~`
        node = Node(op, inputs, attributes, Value(f"~{self._count}", type), exact)
        node.mark_checked()
        return self._append(node)

    def constant(self, array: Array, dtype: DType) -> Value:
        """Append an array as a constant."""
        fixed = np.asarray(array, numpy_dtype(dtype), order="C")
        return self.emit("constant", value=Literal(fixed))

    def keep(self, node: Node) -> Value:
        """Copy a node of the old graph, with its inputs replaced."""
        inputs = tuple(self._moved.get(value.name, value) for value in node.inputs)
        return self._append(with_values(node, inputs, node.result))

    def replace(self, old: Value, new: Value) -> None:
        """Replace the old value by `new` for all later readers."""
        if new is not old:
            self._moved[old.name] = new

    def finish(self, outputs: Outputs | None = None) -> Graph:
        """The new graph, without dead nodes, its values renumbered.

        `outputs` are values of the new graph, if they differ from those of the old.
        """
        if outputs is None:
            outputs = tuple((name, self.new(value)) for name, value in self.graph.outputs)
        marks = tuple(
            (name, self.new(value))
            for name, value in self.graph.marks
            if self.new(value).type == value.type
        )
        return renumber(self.graph, _needed(self._nodes, outputs), outputs, marks)

    def _append(self, node: Node) -> Value:
        self._nodes.append(node)
        self._made[node.result.name] = node
        return node.result


def rewrite(graph: Graph, wanted: Container[str], make: Callable[[Rewriter, Node], Value]) -> Graph:
    """The graph with each node whose result is in `wanted` replaced by the value of `make`."""
    rewriter = Rewriter(graph)
    for node in graph:
        if node.result.name in wanted:
            rewriter.replace(node.result, make(rewriter, node))
        else:
            rewriter.keep(node)
    return rewriter.finish()


def _needed(nodes: list[Node], outputs: Outputs) -> tuple[Node, ...]:
    needed = {value.name for _, value in outputs}
    kept: list[Node] = []
    for node in reversed(nodes):
        if node.result.name in needed:
            kept.append(node)
            needed.update(value.name for value in node.inputs)
    return tuple(reversed(kept))


def renumber(graph: Graph, nodes: Iterable[Node], outputs: Outputs, marks: Outputs = ()) -> Graph:
    """The graph with these nodes, their results named %0, %1, ...; itself if nothing changed.

    Marks of values that are no longer computed are dropped.
    """
    names: dict[str, Value] = {}
    known = {value.name for value in (*graph.inputs, *graph.params)}
    fresh: list[Node] = []
    for number, node in enumerate(nodes):
        name, result = str(number), node.result
        inputs = tuple(names.get(value.name, value) for value in node.inputs)
        known.add(result.name)
        if result.name != name:
            names[result.name] = result = Value(name, result.type)
        fresh.append(with_values(node, inputs, result))
    outputs = tuple((name, names.get(value.name, value)) for name, value in outputs)
    kept = [(name, value) for name, value in marks if value.name in known]
    marks = tuple((name, names.get(value.name, value)) for name, value in kept)
    same = len(fresh) == len(graph.nodes) and all(map(is_, fresh, graph.nodes))
    if same and outputs == graph.outputs and marks == graph.marks:
        return graph
    return Graph(graph.name, graph.inputs, graph.params, tuple(fresh), outputs, marks)


def rewrite_matches(
    graph: Graph,
    find: Callable[[Node], Match | None],
    emit: Callable[[Rewriter, Node, Match], Value],
) -> Graph:
    """The graph with the results of matching nodes replaced by what `emit` appends for them.

    `find` gives the parts of a match, or None for a node that is kept.
    """
    rewriter = Rewriter(graph)
    for node in graph:
        found = find(node)
        if found is None:
            rewriter.keep(node)
        else:
            rewriter.replace(node.result, emit(rewriter, node, found))
    return rewriter.finish()


def with_values(node: Node, inputs: tuple[Value, ...], result: Value) -> Node:
    """The node with other values; itself if they are the same, so that it stays checked."""
    if inputs == node.inputs and result is node.result:
        return node
    other = Node(node.op, inputs, node.attributes, result, node.exact)
    types = [value.type for value in inputs]
    if node.symbols_if_checked is not None and types == [value.type for value in node.inputs]:
        other.mark_checked()
    return other


def with_params(graph: Graph, params: Mapping[str, Value]) -> Graph:
    """The graph with only the params that it reads, in their order, taken from `params`."""
    read = {value.name for node in graph for value in node.inputs}
    read |= {value.name for _, value in graph.outputs}
    kept = tuple(value for name, value in params.items() if name in read)
    if kept == graph.params:
        return graph
    marks = tuple(mark for mark in graph.marks if mark[1] not in graph.params or mark[1] in kept)
    return Graph(graph.name, graph.inputs, kept, graph.nodes, graph.outputs, marks)

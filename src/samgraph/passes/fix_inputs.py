"""fix_inputs: a graph for inputs that are always the same, with nothing left of what they decide.

    graph f(%x: f32[N,8], %flag: bool[N])              graph f(%x: f32[N,8])
    %0 = relu(%x)                                =>    %0 = relu(%x)          flag=True
    %1 = where(%flag, %0, %w)                          return y=%0
    return y=%1

Each input that is fixed has one value all over, whatever its lengths. That value is followed
through the ops it reaches: what is the same all over becomes a number, a choice that is decided
goes, and so does adding zero or multiplying by one. Outputs that are not wanted may be left out,
with what only they need.
"""

from collections.abc import Collection, Mapping

import numpy as np

from samgraph.errors import GraphError
from samgraph.graph.evaluation import evaluate_node
from samgraph.graph.graph import Graph, Node, Value
from samgraph.graph.types import Array, numpy_dtype
from samgraph.graph.verifier import verify
from samgraph.passes.rewriter import Rewriter

_POINTWISE = frozenset(
    (
        "add", "cast", "clip", "compare", "cos", "div", "exp", "log", "maximum", "minimum", "mul",
        "relu", "sigmoid", "sin", "sqrt", "sub", "where",
    )
)  # fmt: skip
_MOVES = frozenset(("expand", "reshape", "slice", "tile", "transpose"))


def fix_inputs(
    graph: Graph, values: Mapping[str, float | bool], outputs: Collection[str] | None = None
) -> Graph:
    """The graph without the inputs in `values`, for those values; with `outputs` alone, if given.

    Lengths that only a fixed input tells become 1.
    """
    named = {value.name: value for value in graph.inputs}
    _check(graph, values, outputs)
    lengths = _lost(graph, values)
    if lengths:
        from samgraph.passes.specialise import specialise

        graph = specialise(graph, dict.fromkeys(lengths, 1))
        named = {value.name: value for value in graph.inputs}
    kept = tuple(value for value in graph.inputs if value.name not in values)
    rewriter = Rewriter(Graph(graph.name, kept, graph.params, graph.nodes, graph.outputs))
    state = _State(rewriter)
    for name, number in values.items():
        array = np.asarray(number, numpy_dtype(named[name].type.dtype))
        rewriter.replace(named[name], state.filled(array, named[name]))
    for node in graph:
        rewriter.replace(node.result, state.make(node))
    wanted = tuple(
        (name, rewriter.new(value))
        for name, value in graph.outputs
        if outputs is None or name in outputs
    )
    made = rewriter.finish(wanted)
    read = {value.name for node in made for value in node.inputs}
    read |= {value.name for _, value in made.outputs}
    used = {symbol for node in made for symbol in node.result.type.symbols}
    for value in made.inputs:  # what is not read may still bind a symbol
        bound = {s for other in made.inputs if other.name in read for s in other.type.symbols}
        if value.name not in read and value.type.symbols & used - bound:
            read.add(value.name)
    inputs = tuple(value for value in made.inputs if value.name in read)
    params = tuple(value for value in made.params if value.name in read)
    fixed = Graph(graph.name, inputs, params, made.nodes, made.outputs)
    verify(fixed)
    return fixed


def _check(
    graph: Graph, values: Mapping[str, float | bool], outputs: Collection[str] | None
) -> None:
    inputs = [value.name for value in graph.inputs]
    for kind, given, known in (
        ("input", values, inputs),
        ("output", outputs or (), [name for name, _ in graph.outputs]),
    ):
        unknown = sorted(set(given) - set(known))
        if unknown:
            text = f"graph `{graph.name}` has no {kind} `{unknown[0]}`"
            raise GraphError(text, expected=", ".join(known))


def _lost(graph: Graph, values: Mapping[str, float | bool]) -> set[str]:
    """The symbols that only fixed inputs tell."""
    told: set[str] = set()
    for value in graph.inputs:
        if value.name not in values:
            told |= value.type.symbols
    return set(graph.symbols) - told


class _State:
    """What is known of the values of the new graph: which are one number all over."""

    def __init__(self, rewriter: Rewriter) -> None:
        self._rewriter = rewriter
        self._numbers: dict[str, Array] = {}

    def filled(self, number: Array, like: Value) -> Value:
        """A value of this type that is a number all over."""
        made = self._rewriter.constant(number.reshape(()), like.type.dtype)
        self._numbers[made.name] = number.reshape(())
        if like.type.shape:
            made = self._rewriter.emit("expand", made, shape=like.type.shape)
            self._numbers[made.name] = number.reshape(())
        return made

    def number(self, value: Value) -> Array | None:
        """The number that a value of the new graph is all over."""
        if value.name in self._numbers:
            return self._numbers[value.name]
        array = self._rewriter.constant_of(value)
        if array is None or not array.size or not (array == array.reshape(-1)[0]).all():
            return None
        return np.asarray(array.reshape(-1)[0])

    def make(self, node: Node) -> Value:
        """What stands for the result of a node of the old graph."""
        inputs = [self._rewriter.new(value) for value in node.inputs]
        numbers = [self.number(value) for value in inputs]
        known = [number for number in numbers if number is not None]
        if inputs and len(known) == len(inputs):
            if node.op in _MOVES:
                return self.filled(known[0], node.result)
            if node.op in _POINTWISE:
                return self.filled(np.asarray(evaluate_node(node, known, {})), node.result)
        simpler = self._simpler(node, inputs, numbers)
        if simpler is not None:
            return simpler
        return self._rewriter.keep(node)

    def _simpler(
        self, node: Node, inputs: list[Value], numbers: list[Array | None]
    ) -> Value | None:
        """The input that a node gives back as it is, or spread."""
        if node.op == "where" and numbers[0] is not None:
            chosen = 1 if numbers[0] else 2
            number = numbers[chosen]
            if number is not None:
                return self.filled(number, node.result)
            return self._spread(inputs[chosen], node.result)
        if node.op in ("add", "mul"):
            neutral = 0 if node.op == "add" else 1
            for value, number in ((inputs[0], numbers[1]), (inputs[1], numbers[0])):
                if number is not None and number == neutral:
                    return self._spread(value, node.result)
        if node.op == "reduce" and numbers[0] is not None and _keeps_numbers(node):
            return self.filled(numbers[0], node.result)
        return None

    def _spread(self, value: Value, like: Value) -> Value:
        if value.type == like.type:
            return value
        return self._rewriter.emit("expand", value, shape=like.type.shape)


def _keeps_numbers(node: Node) -> bool:
    """Whether a reduction of equal numbers gives that number; there must be some."""
    some = not any(dim == 0 for dim in node.inputs[0].type.shape)
    return some and node.attributes["how"] in ("max", "min", "mean")

"""fold_params: compute once, when the weights are bound, what depends on no input.

    %0 = reshape(%w, shape=(O,C))       %0 = linear(%x, %folded.0)
    %1 = linear(%x, %0)           =>    return y=%0
    return y=%1
                                        and, run once:  folded.0 = reshape(%w, shape=(O,C))

So engines see a position embedding, not how it is made. The rewrite needs the types alone; `bind`
then computes the new params from the weights. It is the last step of a pipeline: passes before it
leave alone what `foldable` names, since nothing is gained by making that faster.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from samgraph.graph.evaluation import evaluate_node
from samgraph.graph.graph import Graph, Node, Value
from samgraph.graph.types import Array
from samgraph.passes.fold_constants import may_fold
from samgraph.passes.rewriter import Rewriter, with_params


@dataclass(frozen=True, slots=True)
class Folded:
    """A graph whose params are final, and the graph that makes its new params, if it has any."""

    graph: Graph
    weights: Graph | None

    def bind(self, weights: Mapping[str, Array]) -> dict[str, Array]:
        """The arrays of every param of `graph`, given those of the graph before folding."""
        arrays = dict(weights)
        if self.weights is not None:
            arrays |= _evaluate(self.weights, weights)
        return {value.name: arrays[value.name] for value in self.graph.params}


def fold_params(graph: Graph) -> Folded:
    """Replace what depends on params and constants only by new params."""
    folding = foldable(graph)
    rewriter, folded = Rewriter(graph), dict[str, tuple[Value, Value]]()
    wanted = {v.name for node in graph if node.result.name not in folding for v in node.inputs}
    wanted |= {value.name for _, value in graph.outputs}
    taken = {value.name for value in (*graph.inputs, *graph.params)}
    for node in graph:
        if node.result.name not in folding:
            rewriter.keep(node)
        elif node.result.name in wanted:
            name = _free_name(len(folded), taken)
            taken.add(name)
            folded[name] = (Value(name, node.result.type), node.result)
            rewriter.replace(node.result, folded[name][0])
    if not folded:
        return Folded(with_params(graph, {value.name: value for value in graph.params}), None)
    params = {value.name: value for value in graph.params}
    new = {name: value for name, (value, _) in folded.items()}
    outputs = tuple((name, made) for name, (_, made) in folded.items())
    return Folded(
        with_params(rewriter.finish(), params | new), _weights_graph(graph, folding, outputs)
    )


def foldable(graph: Graph) -> frozenset[str]:
    """The names of the results that depend on params and constants only, constants left out."""
    fixed = {value.name for value in graph.params}
    found: set[str] = set()
    for node in graph:
        if node.op == "constant":
            fixed.add(node.result.name)
        elif all(value.name in fixed for value in node.inputs) and may_fold(node):
            fixed.add(node.result.name)
            found.add(node.result.name)
    return frozenset(found)


def _weights_graph(
    graph: Graph, folding: frozenset[str], outputs: tuple[tuple[str, Value], ...]
) -> Graph:
    """The graph without inputs that makes the new params."""
    nodes = tuple(n for n in graph if n.op == "constant" or n.result.name in folding)
    part = Rewriter(Graph(f"{graph.name}.weights", (), graph.params, nodes, outputs))
    for node in nodes:
        part.keep(node)
    return with_params(part.finish(), {value.name: value for value in graph.params})


def _evaluate(graph: Graph, weights: Mapping[str, Array]) -> dict[str, Array]:
    arrays = dict(weights)
    left = graph.use_counts()
    for node in graph:
        known = [arrays[value.name] for value in node.inputs]
        arrays[node.result.name] = np.asarray(evaluate_node(node, known, {}), order="C")
        _release(node, left, arrays)
    return {name: arrays[value.name] for name, value in graph.outputs}


def _release(node: Node, left: dict[str, int], arrays: dict[str, Array]) -> None:
    """Free the arrays that are dead after `node`."""
    for value in node.inputs:
        left[value.name] -= 1
        if left[value.name] == 0:
            del arrays[value.name]


def _free_name(number: int, taken: set[str]) -> str:
    """`folded.0` and so on; a graph that was folded before has some of them already."""
    while f"folded.{number}" in taken:
        number += 1
    return f"folded.{number}"

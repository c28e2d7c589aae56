"""Evaluation of nodes and graphs by the numpy references of their ops."""

from collections.abc import Mapping, Sequence

import numpy as np

from samgraph.graph.graph import Graph, Node, bind_attribute
from samgraph.graph.registry import find_op
from samgraph.graph.types import Array


def evaluate_node(node: Node, arguments: Sequence[Array], bindings: Mapping[str, int]) -> Array:
    """The result of one node; `bindings` gives the value of every symbol."""
    attributes = {key: bind_attribute(value, bindings) for key, value in node.attributes.items()}
    with np.errstate(all="ignore"):  # infinities and NaN are valid results
        return np.asarray(find_op(node.op).reference(*arguments, **attributes))


def evaluate_graph(
    graph: Graph, values: Mapping[str, Array], bindings: Mapping[str, int]
) -> dict[str, Array]:
    """Every output, given an array for every input and param; dead values are freed."""
    left = graph.use_counts()
    memory = dict(values)
    for node in graph:
        arguments = [memory[value.name] for value in node.inputs]
        memory[node.result.name] = evaluate_node(node, arguments, bindings)
        for value in node.inputs:
            left[value.name] -= 1
            if left[value.name] == 0:
                del memory[value.name]
    return {name: memory[value.name] for name, value in graph.outputs}

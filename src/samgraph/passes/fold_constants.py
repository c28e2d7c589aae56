"""fold_constants: compute now what depends on constants only.

    %0 = constant(value=f32[]{2.0})
    %1 = sqrt(%0)                       %0 = constant(value=f32[]{1.4142135})
    %2 = mul(%x, %1)          =>        %1 = mul(%x, %0)
    return y=%2                         return y=%1

`fold_params` does the same with the weights in hand: what depends on params and constants
only becomes a new param, so that engines see a position embedding, not how it is made.
"""

import math
from collections.abc import Mapping

import numpy as np

from samgraph.graph.dims import Expr
from samgraph.graph.evaluation import evaluate_node
from samgraph.graph.graph import Graph, Literal, Node, Value, dims_of
from samgraph.graph.types import Array
from samgraph.passes.rewriter import Rewriter, with_params

LARGEST = 1 << 24  # elements; a folded array must not be out of proportion
_MAKES_COPIES = ("expand", "tile")


def fold_constants(graph: Graph) -> Graph:
    """Replace nodes of constant inputs by constants."""
    rewriter = Rewriter(graph)
    for node in graph:
        result = rewriter.keep(node)
        arrays = [rewriter.constant_of(rewriter.new(value)) for value in node.inputs]
        known = [array for array in arrays if array is not None]
        if node.op == "constant" or len(known) < len(arrays) or not _may_fold(node):
            continue
        array = np.asarray(evaluate_node(node, known, {}), order="C")
        rewriter.replace(result, rewriter.emit("constant", value=Literal(array)))
    return rewriter.finish()


def fold_params(graph: Graph, weights: Mapping[str, Array]) -> tuple[Graph, dict[str, Array]]:
    """Compute with the weights what needs no input; returns the graph and its new weights."""
    arrays: dict[str, Array] = {value.name: weights[value.name] for value in graph.params}
    folded: dict[str, Value] = {}
    rewriter = Rewriter(graph)
    for node in graph:
        if node.op == "constant":
            arrays[node.result.name] = node.array()
        elif all(value.name in arrays for value in node.inputs) and _may_fold(node):
            known = [arrays[value.name] for value in node.inputs]
            name = _free_name(len(folded), arrays)
            arrays[node.result.name] = np.asarray(evaluate_node(node, known, {}), order="C")
            arrays[name] = arrays[node.result.name]
            folded[name] = Value(name, node.result.type)
            rewriter.replace(node.result, folded[name])
            continue
        rewriter.keep(node)
    params = {value.name: value for value in graph.params} | folded
    result = with_params(rewriter.finish(), params)
    return result, {value.name: arrays[value.name] for value in result.params}


def _free_name(number: int, taken: Mapping[str, Array]) -> str:
    """`folded.0` and so on; a graph that was folded before has some of them already."""
    while f"folded.{number}" in taken:
        number += 1
    return f"folded.{number}"


def _may_fold(node: Node) -> bool:
    """Whether the result is known now, and of a reasonable size."""
    dims = [dim for value in node.attributes.values() for dim in dims_of(value)]
    if node.op in _MAKES_COPIES or any(isinstance(dim, Expr) for dim in dims):
        return False
    return math.prod(node.result.type.lengths) <= LARGEST

"""fold_constants: evaluate nodes that depend on constants only.

%0 = constant(value=f32[]{2.0})
%1 = sqrt(%0)                       %0 = constant(value=f32[]{1.4142135})
%2 = mul(%x, %1)          =>        %1 = mul(%x, %0)
return y=%2                         return y=%1
"""

import math

import numpy as np

from samgraph.graph.dims import Expr
from samgraph.graph.evaluation import evaluate_node
from samgraph.graph.graph import Graph, Literal, Node, dims_of
from samgraph.passes.rewriter import Rewriter

LARGEST = 1 << 24  # elements of a folded array
_MAKES_COPIES = ("expand", "tile")


def fold_constants(graph: Graph) -> Graph:
    """Replace nodes of constant inputs by constants."""
    rewriter = Rewriter(graph)
    for node in graph:
        result = rewriter.keep(node)
        arrays = [rewriter.constant_of(rewriter.new(value)) for value in node.inputs]
        known = [array for array in arrays if array is not None]
        if node.op == "constant" or len(known) < len(arrays) or not may_fold(node):
            continue
        array = np.asarray(evaluate_node(node, known, {}), order="C")
        rewriter.replace(result, rewriter.emit("constant", value=Literal(array)))
    return rewriter.finish()


def may_fold(node: Node) -> bool:
    """Whether the result can be computed now, and is not too large."""
    dims = [dim for value in node.attributes.values() for dim in dims_of(value)]
    if node.op in _MAKES_COPIES or any(isinstance(dim, Expr) for dim in dims):
        return False
    return math.prod(node.result.type.lengths) <= LARGEST

"""For passes that decompose attention: scaling, splitting of heads, weights by head.

Shapes: N batch, T tokens, h heads of width D, C channels.
"""

import numpy as np

from samgraph.graph.dims import Dim, evaluate
from samgraph.graph.graph import Graph, Node, Value
from samgraph.passes.rewriter import Rewriter

SPLIT_HEADS = (0, 2, 1, 3)  # [N, T, h, D] <-> [N, h, T, D]
SWAP = (0, 2, 1)


def plain_linear(graph: Graph, value: Value, uses: dict[str, int]) -> Node | None:
    """The linear layer without activation that produces `value` for its only reader, or None."""
    node = graph.producers().get(value.name)
    if node is None or node.op != "linear" or uses.get(value.name) != 1:
        return None
    return node if node.attributes.get("activation", "none") == "none" else None


def heads_of(node: Node) -> int:
    """The number of heads of an attention."""
    return int(str(node.attributes["heads"]))


def least(dim: Dim, each: int = 1) -> int:
    """A length with every symbol at `each`: at 1, since symbols are mostly small."""
    return dim if isinstance(dim, int) else evaluate(dim, dict.fromkeys(dim.symbols, each))


def scaled_heads(rewriter: Rewriter, x: Value, node: Node) -> Value:
    """x times the scale of an attention, split into heads: [N, T, h*D] -> [N, h, T, D]."""
    scale = rewriter.constant(np.asarray(node.attributes["scale"]), x.type.dtype)
    return split_heads(rewriter, rewriter.emit("mul", x, scale, exact=node.exact), node)


def split_heads(rewriter: Rewriter, x: Value, node: Node) -> Value:
    """[N, T, h*D] -> [N, h, T, D]."""
    N, T, width = x.type.shape
    shape = (N, T, heads_of(node), width // heads_of(node))
    split = rewriter.emit("reshape", x, exact=node.exact, shape=shape)
    return rewriter.emit("transpose", split, exact=node.exact, axes=SPLIT_HEADS)


def split_weight(rewriter: Rewriter, weight: Value, node: Node) -> Value:
    """The weight of a linear layer, its outputs by head: [h*D, C] -> [1, h, D, C]."""
    (width, C), heads = weight.type.shape, heads_of(node)
    return rewriter.emit("reshape", weight, shape=(1, heads, width // heads, C))


def heads_in_rows(rewriter: Rewriter, x: Value, node: Node) -> Value:
    """[N, h, T, C] -> [N, h*T, C]."""
    N, heads, T, C = x.type.shape
    return rewriter.emit("reshape", x, exact=node.exact, shape=(N, heads * T, C))

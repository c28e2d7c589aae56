"""fuse_mlps: the two linear layers of a feed-forward block become one op.

    %0 = fused_linear(%x, %w1, %b1, eps=..., activation="gelu")
    %1 = fused_linear(%0, %w2, %b2, %x)                             =>    %0 = fused_mlp(%x, ...)
    return y=%1                                                           return y=%0

Only where nothing else reads the hidden layer, which kernels for narrow rows never write.
"""

from samgraph.engines.torch.passes.layers import Search
from samgraph.graph.graph import Graph, Node
from samgraph.passes.rewriter import Rewriter


def fuse_mlps(graph: Graph) -> Graph:
    """Join each second layer with the first."""
    if not graph.has("fused_linear"):
        return graph
    search, rewriter = Search(graph), Rewriter(graph)
    for node in graph:
        first = _first(search, node)
        if first is None:
            rewriter.keep(node)
            continue
        values = (*first.inputs[:3], *node.inputs[1:3])
        new = [rewriter.new(value) for value in values]
        eps, activation = first.attributes["eps"], first.attributes["activation"]
        made = rewriter.emit("fused_mlp", *new, eps=eps, activation=activation)
        rewriter.replace(node.result, made)
    return rewriter.finish()


def _first(search: Search, node: Node) -> Node | None:
    """The first layer, if the two are such a block."""
    if node.op != "fused_linear" or len(node.inputs) != 4 or node.attributes or node.exact:
        return None
    first = search.only(node.inputs[0], "fused_linear")
    if first is None or len(first.inputs) != 3 or first.inputs[0] != node.inputs[3]:
        return None
    given = set(first.attributes) == {"eps", "activation"} and not first.exact
    return first if given and first.attributes["activation"] != "sigmoid" else None

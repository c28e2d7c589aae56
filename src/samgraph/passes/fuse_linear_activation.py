"""fuse_linear_activation: let a linear layer apply the activation that follows it.

    %0 = linear(%x, %w, %b)             %0 = linear(%x, %w, %b, activation="relu")
    %1 = relu(%0)             =>        return y=%0
    return y=%1

Only where nothing else reads the value in between.
"""

from samgraph.graph.graph import Graph
from samgraph.passes.rewriter import Rewriter

_ACTIVATIONS = ("relu", "gelu", "sigmoid")


def fuse_linear_activation(graph: Graph) -> Graph:
    """Fuse each activation with the linear layer before it."""
    if not graph.has(*_ACTIVATIONS):
        return graph
    rewriter = Rewriter(graph)
    uses = graph.use_counts()
    for node in graph:
        rewriter.keep(node)
        if node.op not in _ACTIVATIONS or uses[node.inputs[0].name] != 1:
            continue
        before = rewriter.maker(rewriter.new(node.inputs[0]))
        if before is None or before.op != "linear":
            continue
        if before.text("activation", "none") != "none" or before.exact != node.exact:
            continue
        fused = rewriter.emit("linear", *before.inputs, exact=node.exact, activation=node.op)
        rewriter.replace(node.result, fused)
    return rewriter.finish()

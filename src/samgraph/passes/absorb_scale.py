"""absorb_scale: a scale per channel that follows a linear layer goes into its weights.

    %0 = linear(%x, %w, %b)             %0 = reshape(%scale, shape=(C,1))
    %1 = mul(%0, %scale)         =>     %1 = mul(%w, %0)
    return y=%1                         %2 = mul(%b, %scale)
                                        %3 = linear(%x, %1, %2)
                                        return y=%3

Only where the scale is a param or a constant, and nothing else reads the value in between.
"""

from samgraph.graph.graph import Graph, Node, Value
from samgraph.passes.rewriter import Rewriter


def absorb_scale(graph: Graph) -> Graph:
    """Fold each scale into the linear layer before it."""
    if not graph.has("mul"):
        return graph
    rewriter = Rewriter(graph)
    uses = graph.use_counts()
    fixed = {value.name for value in graph.params}
    fixed |= {node.result.name for node in graph if node.op == "constant"}
    for node in graph:
        pair = _pair(graph, node) if node.op == "mul" else None
        if pair is None or pair[1].name not in fixed or uses[pair[0].result.name] != 1:
            rewriter.keep(node)
        else:
            rewriter.replace(node.result, _scaled(rewriter, *pair))
    return rewriter.finish()


def _pair(graph: Graph, node: Node) -> tuple[Node, Value] | None:
    """The linear layer and the scale, in either order."""
    for y, scale in (node.inputs, node.inputs[::-1]):
        made = graph.producers().get(y.name)
        if made is None or made.op != "linear" or made.exact != node.exact:
            continue
        if made.text("activation", "none") != "none":
            continue
        if scale.type.shape == y.type.shape[-1:]:
            return made, scale
    return None


def _scaled(rewriter: Rewriter, linear: Node, scale: Value) -> Value:
    x, weight, *bias = (rewriter.new(value) for value in linear.inputs)
    scale = rewriter.new(scale)
    column = rewriter.emit("reshape", scale, shape=(*scale.type.shape, 1))
    weight = rewriter.emit("mul", weight, column)
    bias = [rewriter.emit("mul", value, scale) for value in bias]
    return rewriter.emit("linear", x, weight, *bias, exact=linear.exact)

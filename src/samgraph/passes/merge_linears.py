"""merge_linears: two linear layers in a row become one, when that is less work.

    %0 = linear(%x, %w1, %b1)           %0 = matmul(%w2, %w1)
    %1 = linear(%0, %w2, %b2)    =>     %1 = linear(%b1, %w2, %b2)
    return y=%1                         %2 = linear(%x, %0, %1)
                                        return y=%2

Only where nothing else reads the value in between, and where the first layer widens enough that the
product costs fewer multiply-adds: in * out < in * between + between * out.
"""

from samgraph.graph.graph import Graph, Node
from samgraph.passes.rewriter import Rewriter


def merge_linears(graph: Graph) -> Graph:
    """Merge each linear layer with the linear layer before it."""
    rewriter = Rewriter(graph)
    uses = graph.use_counts()
    for node in graph:
        first = rewriter.maker(rewriter.new(node.inputs[0])) if node.op == "linear" else None
        if first is None or uses[node.inputs[0].name] != 1 or not _pays(first, node):
            rewriter.keep(node)
        else:
            _merge(rewriter, first, node)
    return rewriter.finish()


def _pays(first: Node, second: Node) -> bool:
    if first.op != "linear" or first.text("activation", "none") != "none":
        return False
    between, start = first.inputs[1].type.lengths
    end = second.inputs[1].type.length(0)
    saves = start * end < between * (start + end)
    return saves and first.exact == second.exact


def _merge(rewriter: Rewriter, first: Node, second: Node) -> None:
    x, inner, *inner_bias = first.inputs
    outer, *bias = (rewriter.new(value) for value in second.inputs[1:])
    weight = rewriter.emit("matmul", outer, inner)
    if inner_bias:
        bias = [rewriter.emit("linear", inner_bias[0], outer, *bias)]
    merged = rewriter.emit("linear", x, weight, *bias, exact=second.exact, **second.attributes)
    rewriter.replace(second.result, merged)

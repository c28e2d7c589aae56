"""decompose_layer_norm_2d: a norm over the channels of an image is a layer norm, channels-last.

    %0 = layer_norm_2d(%x, %s, %t)        %0 = transpose(%x, axes=(0,2,3,1))
    return y=%0                     =>    %1 = layer_norm(%0, %s, %t)
                                          %2 = transpose(%1, axes=(0,3,1,2))
                                          return y=%2

For engines that have no such op.
"""

from samgraph.graph.graph import Graph, Node, Value
from samgraph.passes.pointwise_to_linear import CHANNELS_LAST, CHANNELS_SECOND
from samgraph.passes.rewriter import Rewriter, rewrite


def decompose_layer_norm_2d(graph: Graph) -> Graph:
    """Replace every layer_norm_2d."""
    found = {node.result.name for node in graph if node.op == "layer_norm_2d"}
    return rewrite(graph, found, _decomposed) if found else graph


def _decomposed(rewriter: Rewriter, node: Node) -> Value:
    x, scale, shift = (rewriter.new(value) for value in node.inputs)
    exact = node.exact
    last = rewriter.emit("transpose", x, exact=exact, axes=CHANNELS_LAST)
    normal = rewriter.emit("layer_norm", last, scale, shift, exact=exact, **node.attributes)
    return rewriter.emit("transpose", normal, exact=exact, axes=CHANNELS_SECOND)

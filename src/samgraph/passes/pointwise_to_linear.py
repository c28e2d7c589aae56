"""pointwise_to_linear: a 1 x 1 convolution of a channels-last map is a linear layer.

    %0 = transpose(%x, axes=(0,3,1,2))          %0 = reshape(%w, shape=(O,C))
    %1 = conv2d(%0, %w, %b)              =>     %1 = linear(%x, %0, %b)
    return y=%1                                 %2 = transpose(%1, axes=(0,3,1,2))
                                                return y=%2

The transpose moves behind it, where it can cancel with another.
"""

from samgraph.graph.graph import Attribute, Graph, Node, Value
from samgraph.passes.rewriter import Rewriter

CHANNELS_LAST, CHANNELS_SECOND = (0, 2, 3, 1), (0, 3, 1, 2)
PLAIN: dict[str, Attribute] = {"stride": (1, 1), "padding": (0, 0), "groups": 1}


def pointwise_to_linear(graph: Graph) -> Graph:
    """Rewrite each 1 x 1 convolution whose input is transposed from channels-last."""
    if not graph.has("conv2d"):
        return graph
    rewriter = Rewriter(graph)
    for node in graph:
        moved = rewriter.maker(rewriter.new(node.inputs[0])) if is_pointwise(node) else None
        if moved is None or not is_transpose(moved, CHANNELS_SECOND):
            rewriter.keep(node)
            continue
        rewriter.replace(node.result, _linear(rewriter, node, moved.inputs[0]))
    return rewriter.finish()


def is_transpose(node: Node, axes: tuple[int, ...]) -> bool:
    """Whether a node is the transpose to this order of axes."""
    return node.op == "transpose" and node.integers("axes") == axes


def is_pointwise(node: Node) -> bool:
    """Whether a node is a plain 1 x 1 convolution."""
    if node.op != "conv2d" or node.inputs[1].type.shape[2:] != (1, 1):
        return False
    return all(node.attributes[key] == value for key, value in PLAIN.items())


def _linear(rewriter: Rewriter, node: Node, x: Value) -> Value:
    weight, *bias = (rewriter.new(value) for value in node.inputs[1:])
    flat = rewriter.emit("reshape", weight, shape=weight.type.shape[:2])
    y = rewriter.emit("linear", x, flat, *bias, exact=node.exact)
    return rewriter.emit("transpose", y, exact=node.exact, axes=CHANNELS_SECOND)

"""fold_batch_norm: a scale and a shift per channel that follow a convolution go into its weights.

    %0 = conv2d(%x, %w)                 %0 = reshape(%scale, shape=(C,1,1,1))
    %1 = mul(%0, %scale)         =>     %1 = mul(%w, %0)
    %2 = add(%1, %shift)                %2 = reshape(%shift, shape=(C,))
    return y=%2                         %3 = conv2d(%x, %1, %2)
                                        return y=%3

A batch norm with the statistics of training is such a pair. Only where scale and shift, [C, 1, 1],
depend on no input, and nothing else reads the value in between.
"""

from samgraph.graph.graph import Graph, Node, Value
from samgraph.passes.fold_params import foldable
from samgraph.passes.rewriter import Rewriter


def fold_batch_norm(graph: Graph) -> Graph:
    """Fold each scale and shift into the convolution before it."""
    if not graph.has("conv2d"):
        return graph
    rewriter = Rewriter(graph)
    uses, folding = graph.use_counts(), foldable(graph)
    fixed = folding | {value.name for value in graph.params}
    fixed |= {node.result.name for node in graph if node.op == "constant"}
    for node in graph:
        found = None
        if node.op in ("mul", "add") and node.result.name not in folding:
            found = _pair(rewriter, node, fixed, uses)
        if found is None:
            rewriter.keep(node)
        else:
            rewriter.replace(node.result, _folded(rewriter, node.op, *found))
    return rewriter.finish()


def _pair(
    rewriter: Rewriter, node: Node, fixed: frozenset[str], uses: dict[str, int]
) -> tuple[Node, Value] | None:
    """The convolution and the fixed operand, in either order."""
    for y, operand in (node.inputs, node.inputs[::-1]):
        conv = rewriter.maker(rewriter.new(y))
        if conv is None or conv.op != "conv2d" or conv.exact != node.exact:
            continue
        channels = conv.result.type.shape[1]
        is_per_channel = operand.type.shape in ((channels, 1, 1), (1, channels, 1, 1))
        if is_per_channel and operand.name in fixed and uses[y.name] == 1 and y.name not in fixed:
            return conv, rewriter.new(operand)
    return None


def _folded(rewriter: Rewriter, op: str, conv: Node, operand: Value) -> Value:
    x, weight, *bias = conv.inputs
    C = weight.type.shape[0]
    row = rewriter.emit("reshape", operand, shape=(C,))
    if op == "mul":
        column = rewriter.emit("reshape", operand, shape=(C, 1, 1, 1))
        weight = rewriter.emit("mul", weight, column)
        bias = [rewriter.emit("mul", value, row) for value in bias]
    else:
        bias = [rewriter.emit("add", value, row) for value in bias] or [row]
    return rewriter.emit("conv2d", x, weight, *bias, exact=conv.exact, **conv.attributes)

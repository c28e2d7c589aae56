"""tile_sums: an image is repeated for its batch before it is added to a convolution's result.

    %0: f32[1,C,H,W] = conv2d(%image, %w)          %0: f32[1,C,H,W] = conv2d(%image, %w)
    %1: f32[N,C,H,W] = conv2d(%mask, %v)           %1: f32[N,C,H,W] = conv2d(%mask, %v)
    %2: f32[N,C,H,W] = add(%0, %1)          =>     %2: f32[N,C,H,W] = tile(%0, counts=(N,1,1,1))
    return y=%2                                    %3: f32[N,C,H,W] = add(%2, %1)
                                                   return y=%3

OpenVINO 2026.4 adds to the result of a convolution while it is computed, but not where the other
image must be broadcast along the batch.
"""

from samgraph.graph.graph import Graph, Node
from samgraph.passes.rewriter import Rewriter


def tile_sums(graph: Graph) -> Graph:
    """Repeat each batch of one that is added to a batch of a convolution."""
    if not graph.has("conv2d"):
        return graph
    rewriter = Rewriter(graph)
    for node in graph:
        if node.op != "add" or not _is_broadcast(graph, node):
            rewriter.keep(node)
            continue
        inputs = [rewriter.new(value) for value in node.inputs]
        batch = node.result.type.shape[0]
        for i, value in enumerate(inputs):
            if value.type.shape[0] == 1:
                counts = (batch, 1, 1, 1)
                inputs[i] = rewriter.emit("tile", value, exact=node.exact, counts=counts)
        rewriter.replace(node.result, rewriter.emit("add", *inputs, exact=node.exact))
    return rewriter.finish()


def _is_broadcast(graph: Graph, node: Node) -> bool:
    """Whether an image is added to a convolution's result that has more rows."""
    rest = list(node.result.type.shape[1:])
    shapes = [value.type.shape for value in node.inputs]
    if len(rest) != 3 or any(len(s) != 4 or list(s[1:]) != rest for s in shapes):
        return False
    makers = [graph.producers().get(value.name) for value in node.inputs]
    convolved = [made is not None and made.op == "conv2d" for made in makers]
    return shapes[0][0] != shapes[1][0] and any(
        is_conv and shape[0] != 1 for is_conv, shape in zip(convolved, shapes, strict=True)
    )

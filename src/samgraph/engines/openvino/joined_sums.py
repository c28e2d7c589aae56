"""A detour for linear maps at the end of a residual block, to which OpenVINO cannot join the sum.

It joins a sum with a convolution. So, where the image that is added to has its channels second:

    %0 = linear(%h, %w, %b)                     %0 = transpose(%h, axes=(0,3,1,2))
    %1 = transpose(%0, axes=(0,3,1,2))   =>     %1 = conv2d(%0, %w as 1 x 1, %b)
    %2 = add(%x, %1)                            %2 = add(%x, %1)

The transposition costs nothing: OpenVINO keeps the channels of images last in memory. At 1024
pixels the memory encoder takes 1.1 ms less of 34, a third of it for the sum: the convolution is
also faster than the product. Not where a length is a symbol: there it moves the channels about,
and three objects take a fifth longer. In float32 only, where it was measured.
"""

from samgraph.graph.graph import Graph, Node
from samgraph.passes.pointwise_to_linear import CHANNELS_SECOND, PLAIN
from samgraph.passes.rewriter import Rewriter


def join_sums(graph: Graph) -> Graph:
    """The same graph, in which linear maps that are added to an image are convolutions."""
    maps = {moved.result.name: linear for moved in graph if (linear := _find(graph, moved))}
    if not maps:
        return graph
    rewriter = Rewriter(graph)
    for node in graph:
        linear = maps.get(node.result.name)
        if linear is None:
            rewriter.keep(node)
            continue
        x, weight, *bias = (rewriter.new(value) for value in linear.inputs)
        image = rewriter.emit("transpose", x, exact=node.exact, axes=CHANNELS_SECOND)
        kernel = rewriter.emit("reshape", weight, shape=(*weight.type.shape, 1, 1))
        y = rewriter.emit("conv2d", image, kernel, *bias, exact=node.exact, **PLAIN)
        rewriter.replace(node.result, y)
    return rewriter.finish()


def _find(graph: Graph, moved: Node) -> Node | None:
    """The linear map whose result only `moved` reads, and that only a sum of its type."""
    if moved.op != "transpose" or moved.attributes["axes"] != CHANNELS_SECOND:
        return None
    if moved.result.type.symbols:
        return None
    linear = graph.producers().get(moved.inputs[0].name)
    if linear is None or linear.op != "linear":
        return None
    if linear.attributes.get("activation", "none") != "none":
        return None
    uses = graph.use_counts()
    if uses[linear.result.name] != 1 or uses[moved.result.name] != 1:
        return None
    joined = any(
        node.op == "add" and moved.result in node.inputs and _are_alike(node) for node in graph
    )
    return linear if joined else None


def _are_alike(node: Node) -> bool:
    return all(value.type == node.result.type for value in node.inputs)

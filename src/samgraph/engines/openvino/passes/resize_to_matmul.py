"""resize_to_matmul: a resize is a product with constant weights along each axis.

    %0 = resize(%x, size=(R,S))    =>    %0 = matmul(weights [R,H], %x)
    return y=%0                          %1 = matmul(%0, weights [W,S])
                                         return y=%1

Antialiased resizes always, others where the products are small: then they are faster than
OpenVINO's own (256 to 1024 pixels: 1.5 ms against 10). Where a bilinear resize makes the image a
whole number of times as wide, the second product is a convolution over three neighbours. A resize
of symbolic size, and to the nearest pixel, stays.
"""

from samgraph.graph.dims import Expr, known
from samgraph.graph.graph import Graph, Node, Value
from samgraph.ops.resize import weights as resize_weights
from samgraph.passes.pixels_to_channels import with_edges
from samgraph.passes.pointwise_to_linear import CHANNELS_LAST, PLAIN
from samgraph.passes.rewriter import Rewriter, rewrite

_SMALL_RESIZE = 1 << 29  # multiply-adds


def resize_to_matmul(graph: Graph) -> Graph:
    """Rewrite each resize whose sizes are known and whose products are small."""
    if not graph.has("resize"):
        return graph
    found = {node.result.name for node in graph if node.op == "resize"}
    return rewrite(graph, found, _products)


def _products(rewriter: Rewriter, node: Node) -> Value:
    x = rewriter.new(node.inputs[0])
    how, antialias = node.text("how"), node.flag("antialias")
    lengths = (*x.type.shape[1:], *node.result.type.shape[2:])
    if how == "nearest" or any(isinstance(dim, Expr) for dim in lengths):
        return rewriter.keep(node)
    channels, height, width, rows, columns = map(known, lengths)
    work = channels * rows * width * (height + columns)
    if not antialias and work > _SMALL_RESIZE:
        return rewriter.keep(node)
    dtype = x.type.dtype
    left = rewriter.constant(resize_weights(height, rows, how, antialias), dtype)
    tall = rewriter.emit("matmul", left, x, exact=node.exact)
    if how == "bilinear" and not antialias and columns % width == 0:
        return _widen(rewriter, tall, columns // width, node.exact)
    right = rewriter.constant(resize_weights(width, columns, how, antialias).T, dtype)
    return rewriter.emit("matmul", tall, right, exact=node.exact)


def _widen(rewriter: Rewriter, x: Value, times: int, exact: bool) -> Value:
    """[N, C, H, W] to [N, C, H, times*W], bilinear, by a convolution over three neighbours.

    It makes the `times` pixels that one becomes as so many channels. At the borders the outermost
    pixel is its own neighbour. The numbers are those of the product, mostly zeros, with weights.
    """
    N, C, H, W = x.type.shape
    padded = with_edges(rewriter, x, 3, exact)
    single = rewriter.emit("reshape", padded, exact=exact, shape=(N * C, 1, H, W + 2))
    middle = resize_weights(3, 3 * times, "bilinear", False)[times : 2 * times]
    kernel = rewriter.constant(middle[:, None, None], x.type.dtype)
    pixels = rewriter.emit("conv2d", single, kernel, exact=exact, **PLAIN)
    last = rewriter.emit("transpose", pixels, exact=exact, axes=CHANNELS_LAST)
    return rewriter.emit("reshape", last, exact=exact, shape=(N, C, H, W * times))

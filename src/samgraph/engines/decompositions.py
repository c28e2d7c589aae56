"""Ops written in terms of others, for engines that lack them."""

from collections.abc import Mapping

import numpy as np

from samgraph.engines.protocol import Decomposition
from samgraph.graph.dims import Dim, Expr, divide, known
from samgraph.graph.graph import Graph, Node, Value
from samgraph.graph.verifier import verify
from samgraph.ops.axial_rope import rotation_tables
from samgraph.ops.resize import weights as resize_weights
from samgraph.passes.merge_duplicates import merge_duplicates
from samgraph.passes.pixels_to_channels import with_edges
from samgraph.passes.pointwise_to_linear import CHANNELS_LAST, PLAIN
from samgraph.passes.rewriter import Rewriter

_SMALL_RESIZE = 1 << 29  # multiply-adds


def decompose(graph: Graph, lacks: Mapping[str, Decomposition]) -> Graph:
    """Replace every op in `lacks` by its decomposition."""
    if not any(node.op in lacks for node in graph):
        return graph
    rewriter = Rewriter(graph)
    for node in graph:
        if node.op in lacks:
            rewriter.replace(node.result, lacks[node.op](rewriter, node))
        else:
            rewriter.keep(node)
    simpler = merge_duplicates(rewriter.finish())
    verify(simpler)
    return simpler


def layer_norm_2d(rewriter: Rewriter, node: Node) -> Value:
    """Channels last, layer_norm, channels back."""
    x, scale, shift = (rewriter.new(value) for value in node.inputs)
    exact = node.exact
    last = rewriter.emit("transpose", x, exact=exact, axes=(0, 2, 3, 1))
    normal = rewriter.emit("layer_norm", last, scale, shift, exact=exact, **node.attributes)
    return rewriter.emit("transpose", normal, exact=exact, axes=(0, 3, 1, 2))


def axial_rope(rewriter: Rewriter, node: Node) -> Value:
    """``x * cos + swapped x * sin``, where swapping exchanges the two channels of each pair.

    Where `x` comes from a linear map, the swapped one is a second linear map with its rows
    exchanged: a narrow product costs less than moving wide keys about.
    """
    x = rewriter.new(node.inputs[0])
    (height, width), unrotated = node.integers("grid"), node.dim("unrotated")
    tokens = x.type.shape[-2]
    turned = tokens - unrotated
    parts = [(0, turned), (turned, tokens)] if unrotated != 0 else [(0, tokens)]
    straight = [_rows_of(rewriter, x, start, end, node.exact) for start, end in parts]
    crossed = _rows_of(rewriter, x, *parts[0], node.exact, swap=True)
    frames = divide(turned, height * width)
    if frames is None:
        raise AssertionError("the type rule of axial_rope lets only whole frames through")
    split = (*x.type.shape[:-2], frames, height * width, x.type.shape[-1])
    cos, sin = _rotation(rewriter, node, x)
    terms = []
    for value, table in ((straight[0], cos), (crossed, sin)):
        framed = rewriter.emit("reshape", value, exact=node.exact, shape=split)
        terms.append(rewriter.emit("mul", framed, table, exact=node.exact))
    total = rewriter.emit("add", *terms, exact=node.exact)
    whole = rewriter.emit("reshape", total, exact=node.exact, shape=straight[0].type.shape)
    if len(parts) == 1:
        return whole
    return rewriter.emit("concat", whole, straight[1], exact=node.exact, axis=-2)


def _rows_of(
    rewriter: Rewriter, x: Value, start: Dim, end: Dim, exact: bool, *, swap: bool = False
) -> Value:
    """Some tokens of `x`, with neighbouring channels exchanged if asked."""
    channels = np.arange(x.type.length(-1))
    order = rewriter.constant(channels ^ 1, "i64") if swap else None
    made = rewriter.maker(x)
    if made is None or made.op != "linear" or made.text("activation", "none") != "none":
        rows = _tokens(rewriter, x, start, end, exact)
        if order is None:
            return rows
        return rewriter.emit("gather", rows, order, exact=exact, axis=-1, batch=0)
    source, *weights = made.inputs
    if order is not None:
        weights = [rewriter.emit("gather", value, order, axis=0, batch=0) for value in weights]
    rows = _tokens(rewriter, source, start, end, exact)
    return rewriter.emit("linear", rows, *weights, exact=exact)


def _rotation(rewriter: Rewriter, node: Node, x: Value) -> tuple[Value, Value]:
    """Cosines, and sines with the sign of their channel: two [h*w, C] tables."""
    heads, (height, width) = node.integer("heads"), node.integers("grid")
    size = x.type.length(-1) // heads
    cos, sin = rotation_tables((height, width), size, node.number("theta"))
    signed = np.stack([-sin, sin], -1).reshape(len(sin), size)
    tables = np.repeat(cos, 2, axis=1), signed
    first, second = (rewriter.constant(np.tile(t, (1, heads)), x.type.dtype) for t in tables)
    return first, second


def resize_by_weights(rewriter: Rewriter, node: Node) -> Value:
    """Two products with constant weights.

    Antialiased resizes always, others where the products are small: then they are faster than
    OpenVINO's own (256 to 1024 pixels: 1.5 ms against 10). The rest stays as it is.
    """
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


def _tokens(rewriter: Rewriter, x: Value, start: Dim, end: Dim, exact: bool) -> Value:
    """Some of the tokens of [..., T, C]."""
    if (start, end) == (0, x.type.shape[-2]):
        return x
    rank = x.type.rank
    starts = (*(0,) * (rank - 2), start, 0)
    ends = (*x.type.shape[:-2], end, x.type.shape[-1])
    steps = (1,) * rank
    return rewriter.emit("slice", x, exact=exact, starts=starts, ends=ends, steps=steps)

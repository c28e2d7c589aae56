"""decompose_axial_rope: rotary position encoding as two products and a sum.

    %0 = linear(%m, %w)                %0 = linear(%m, %w)
    %1 = axial_rope(%0)          =>    %1 = linear(%m, rows of %w exchanged pairwise)
    return y=%1                        %2 = mul(%0, cosines)
                                       %3 = mul(%1, signed sines)
                                       %4 = add(%2, %3)
                                       return y=%4

``x * cos + swapped x * sin``, where swapping exchanges the two channels of each pair. Where `x`
comes from a linear layer, the swapped one is a second linear layer: a narrow product costs less
than moving the channels of wide keys; elsewhere it is a gather. Pooled tokens, and those that are
not rotated, are sliced off before and joined again. For engines that have no such op.
"""

import numpy as np

from samgraph.graph.dims import Dim, divide
from samgraph.graph.graph import Graph, Node, Value
from samgraph.ops.axial_rope import Pair, half, rotation_tables
from samgraph.passes.rewriter import Rewriter, rewrite


def decompose_axial_rope(graph: Graph) -> Graph:
    """Replace every axial_rope."""
    found = {node.result.name for node in graph if node.op == "axial_rope"}
    return rewrite(graph, found, _rotated) if found else graph


def _rotated(rewriter: Rewriter, node: Node) -> Value:
    x = rewriter.new(node.inputs[0])
    grid, tokens = node.integers("grid"), x.type.shape[-2]
    pooled, end = node.dim("pooled", 0), tokens - node.dim("unrotated")
    parts = []
    if pooled != 0:
        parts.append(_frames(rewriter, node, x, (0, pooled), half((grid[0], grid[1])), 2))
    parts.append(_frames(rewriter, node, x, (pooled, end), (grid[0], grid[1]), 1))
    if end != tokens:
        parts.append(_rows_of(rewriter, x, end, tokens, node.exact))
    if len(parts) == 1:
        return parts[0]
    return rewriter.emit("concat", *parts, exact=node.exact, axis=-2)


def _frames(
    rewriter: Rewriter, node: Node, x: Value, rows: tuple[Dim, Dim], grid: Pair, stride: int
) -> Value:
    """Tokens that are whole frames of a grid, rotated."""
    straight, crossed = (
        _rows_of(rewriter, x, *rows, node.exact, swap=swap) for swap in (False, True)
    )
    frames = divide(rows[1] - rows[0], grid[0] * grid[1])
    if frames is None:
        raise AssertionError("the type rule of axial_rope lets only whole frames through")
    split = (*x.type.shape[:-2], frames, grid[0] * grid[1], x.type.shape[-1])
    terms = []
    tables = _rotation(rewriter, node, x, grid, stride)
    for value, table in zip((straight, crossed), tables, strict=True):
        framed = rewriter.emit("reshape", value, exact=node.exact, shape=split)
        terms.append(rewriter.emit("mul", framed, table, exact=node.exact))
    total = rewriter.emit("add", *terms, exact=node.exact)
    return rewriter.emit("reshape", total, exact=node.exact, shape=straight.type.shape)


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


def _rotation(
    rewriter: Rewriter, node: Node, x: Value, grid: Pair, stride: int
) -> tuple[Value, Value]:
    """Cosines, and sines with the sign of their channel: two [h*w, C] tables."""
    heads = node.integer("heads")
    size = x.type.length(-1) // heads
    cos, sin = rotation_tables(grid, size, node.number("theta"), stride)
    signed = np.stack([-sin, sin], -1).reshape(len(sin), size)
    tables = np.repeat(cos, 2, axis=1), signed
    first, second = (rewriter.constant(np.tile(t, (1, heads)), x.type.dtype) for t in tables)
    return first, second


def _tokens(rewriter: Rewriter, x: Value, start: Dim, end: Dim, exact: bool) -> Value:
    """Some of the tokens of [..., T, C]."""
    if (start, end) == (0, x.type.shape[-2]):
        return x
    rank = x.type.rank
    starts = (*(0,) * (rank - 2), start, 0)
    ends = (*x.type.shape[:-2], end, x.type.shape[-1])
    steps = (1,) * rank
    return rewriter.emit("slice", x, exact=exact, starts=starts, ends=ends, steps=steps)

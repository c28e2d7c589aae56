"""Ops written in terms of others, for engines that lack them."""

from collections.abc import Mapping

import numpy as np

from samgraph.engines.protocol import Decomposition
from samgraph.graph.dims import Dim, Expr, divide
from samgraph.graph.graph import Graph, Literal, Node, Value
from samgraph.graph.types import Array, DType, numpy_dtype
from samgraph.graph.verifier import verify
from samgraph.ops.axial_rope import rotation_tables
from samgraph.ops.resize import weights as resize_weights
from samgraph.passes.rewriter import Rewriter


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
    simpler = rewriter.finish()
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
    """Even and odd channels apart, four products with the tables, together again."""
    x = rewriter.new(node.inputs[0])
    heads, unturned = _integer(node, "heads"), _dim(node, "unturned")
    height, width = _pair(node, "grid")
    front, tokens, channels = x.type.shape[:-2], x.type.shape[-2], x.type.shape[-1]
    size = int(str(channels)) // heads
    frames = divide(tokens - unturned, height * width)
    if frames is None:
        raise AssertionError("the type rule of axial_rope lets only whole frames through")
    turned = x if unturned == 0 else _tokens(rewriter, x, 0, tokens - unturned)
    pairs = (*front, frames, height * width, heads, size // 2, 2)
    split = rewriter.emit("reshape", turned, exact=node.exact, shape=pairs)
    a, b = (_last(rewriter, split, i) for i in (0, 1))
    tables = rotation_tables((height, width), size, _number(node, "theta"))
    cos, sin = (_constant(rewriter, t[:, None, :, None], x.type.dtype) for t in tables)

    def times(left: Value, right: Value) -> Value:
        return rewriter.emit("mul", left, right, exact=node.exact)

    first = rewriter.emit("sub", times(a, cos), times(b, sin), exact=node.exact)
    second = rewriter.emit("add", times(a, sin), times(b, cos), exact=node.exact)
    both = rewriter.emit("concat", first, second, exact=node.exact, axis=-1)
    whole = rewriter.emit("reshape", both, exact=node.exact, shape=turned.type.shape)
    if unturned == 0:
        return whole
    rest = _tokens(rewriter, x, tokens - unturned, tokens)
    return rewriter.emit("concat", whole, rest, exact=node.exact, axis=-2)


def antialiased_resize(rewriter: Rewriter, node: Node) -> Value:
    """Two products with constant weights; other resizes stay as they are."""
    x = rewriter.new(node.inputs[0])
    how, antialias = str(node.attributes["how"]), bool(node.attributes["antialias"])
    lengths = (*x.type.shape[2:], *node.result.type.shape[2:])
    if not antialias or any(isinstance(dim, Expr) for dim in lengths):
        return rewriter.keep(node)
    height, width, rows, columns = (int(str(dim)) for dim in lengths)
    dtype = x.type.dtype
    left = _constant(rewriter, resize_weights(height, rows, how, True), dtype)
    right = _constant(rewriter, resize_weights(width, columns, how, True).T, dtype)
    tall = rewriter.emit("matmul", left, x, exact=node.exact)
    return rewriter.emit("matmul", tall, right, exact=node.exact)


def _tokens(rewriter: Rewriter, x: Value, start: Dim, end: Dim) -> Value:
    """Some of the tokens of [..., T, C]."""
    rank = x.type.rank
    starts = (*(0,) * (rank - 2), start, 0)
    ends = (*x.type.shape[:-2], end, x.type.shape[-1])
    return rewriter.emit("slice", x, starts=starts, ends=ends, steps=(1,) * rank)


def _last(rewriter: Rewriter, x: Value, place: int) -> Value:
    """One element of the last axis, which stays, of length one."""
    rank = x.type.rank
    starts = (*(0,) * (rank - 1), place)
    ends = (*x.type.shape[:-1], place + 1)
    return rewriter.emit("slice", x, starts=starts, ends=ends, steps=(1,) * rank)


def _constant(rewriter: Rewriter, array: Array, dtype: DType) -> Value:
    fixed = np.ascontiguousarray(array).astype(numpy_dtype(dtype))
    return rewriter.emit("constant", value=Literal(fixed))


def _integer(node: Node, key: str) -> int:
    return int(str(node.attributes[key]))


def _number(node: Node, key: str) -> float:
    return float(str(node.attributes[key]))


def _dim(node: Node, key: str) -> Dim:
    value = node.attributes[key]
    return value if isinstance(value, Expr) else int(str(value))


def _pair(node: Node, key: str) -> tuple[int, int]:
    value = node.attributes[key]
    first, second = value if isinstance(value, tuple) else (value, value)
    return int(str(first)), int(str(second))

"""One ONNX node, or a few, for each of our ops. `LOWER` is the table.

Operators of ONNX's own domain only, so that any runtime of the opset can run them. A rule gets the
node and its inputs as names of the ONNX graph.
"""

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from samgraph.engines.onnx.emitter import Emitter, Name
from samgraph.engines.onnx.gathering import gather
from samgraph.engines.onnx.resizing import resize
from samgraph.graph.dims import Dim, Expr, Shape, evaluate, known, product
from samgraph.graph.graph import Node
from samgraph.graph.types import DType, numpy_dtype

Rule: TypeAlias = Callable[[Emitter, Node, Sequence[Name]], Name]

_COMPARE = {
    "eq": "Equal", "ne": "Equal", "lt": "Less", "le": "LessOrEqual", "gt": "Greater",
    "ge": "GreaterOrEqual",
}  # fmt: skip
MOST_SCORES = 1 << 23  # in one piece: 32 MB of float32
_TYPICAL = 7  # of a symbolic length: the frames that SAM 2 remembers
_ACTIVATION = {"relu": "Relu", "gelu": "Gelu", "sigmoid": "Sigmoid"}
# Runtimes have few kernels of bytes and bools: these are computed as i32.
_NARROW: frozenset[DType] = frozenset(("u8", "bool"))


def _plain(kind: str) -> Rule:
    return lambda emitter, _, inputs: emitter.op(kind, *inputs)


def _arithmetic(kind: str) -> Rule:
    """A binary operation; of bytes it is computed as i32 and wraps around."""

    def rule(emitter: Emitter, node: Node, inputs: Sequence[Name]) -> Name:
        dtype = node.result.type.dtype
        if dtype not in _NARROW:
            return emitter.op(kind, *inputs)
        wide = emitter.op(kind, *(emitter.cast(x, "i32") for x in inputs))
        return emitter.cast(wide, dtype)

    return rule


def _compare(emitter: Emitter, node: Node, inputs: Sequence[Name]) -> Name:
    if node.inputs[0].type.dtype in _NARROW:
        inputs = [emitter.cast(x, "i32") for x in inputs]
    y = emitter.op(_COMPARE[node.text("how")], *inputs)
    return emitter.op("Not", y) if node.text("how") == "ne" else y


def _where(emitter: Emitter, node: Node, inputs: Sequence[Name]) -> Name:
    if node.result.type.dtype != "bool":
        return emitter.op("Where", *inputs)
    condition, *choices = inputs
    return emitter.cast(
        emitter.op("Where", condition, *(emitter.cast(x, "u8") for x in choices)), "bool"
    )


def _linear(emitter: Emitter, node: Node, inputs: Sequence[Name]) -> Name:
    x, weight, *bias = inputs
    y = emitter.op("MatMul", x, emitter.transposed(weight))
    if bias:
        y = emitter.op("Add", y, bias[0])
    activation = node.text("activation", "none")
    return y if activation == "none" else emitter.op(_ACTIVATION[activation], y)


def _conv2d(emitter: Emitter, node: Node, inputs: Sequence[Name]) -> Name:
    top, left = node.integers("padding")
    return emitter.op(
        "Conv",
        *inputs,
        kernel_shape=list(node.inputs[1].type.lengths[2:]),
        strides=list(node.integers("stride")),
        pads=[top, left, top, left],
        group=node.integer("groups"),
    )


def _conv_transpose2d(emitter: Emitter, node: Node, inputs: Sequence[Name]) -> Name:
    return emitter.op(
        "ConvTranspose",
        *inputs,
        kernel_shape=list(node.inputs[1].type.lengths[2:]),
        strides=list(node.integers("stride")),
    )


def _layer_norm(emitter: Emitter, node: Node, inputs: Sequence[Name]) -> Name:
    return emitter.op("LayerNormalization", *inputs, axis=-1, epsilon=node.number("eps"))


def _attention(emitter: Emitter, node: Node, inputs: Sequence[Name]) -> Name:
    """Products and a softmax, in each head; of opset 23 ONNX's own operator."""
    heads, scale = node.integer("heads"), node.number("scale")
    if emitter.opset >= 23 and node.result.type.rank == 3 and len(inputs) == 3:
        return emitter.op("Attention", *inputs, q_num_heads=heads, kv_num_heads=heads, scale=scale)
    shapes = [value.type.shape for value in node.inputs]
    rank, dtype = node.result.type.rank, node.result.type.dtype
    apart = heads > 1 or len(inputs) > 3  # a mask has an axis for the heads
    q, k, v = inputs[:3]
    if scale != 1.0:
        q = emitter.op("Mul", q, emitter.scalar(scale, dtype))
    keys_last = [*range(rank - 2), rank - 1, rank - 2]  # [..., T, D] to [..., D, T]
    if apart:
        swapped = _swap_heads(rank)
        q, v = (_split(emitter, x, shapes[i], heads, swapped) for i, x in ((0, q), (2, v)))
        keys_last = [*range(rank - 2), rank - 1, rank, rank - 2]
        k = _split(emitter, k, shapes[1], heads, keys_last)
    else:
        k = emitter.op("Transpose", k, perm=keys_last)
    pieces = 1 if len(inputs) > 3 else score_pieces(node)
    y = _attended(emitter, node, (q, k, v, *inputs[3:]), pieces)
    if not apart:
        return y
    joined = emitter.op("Transpose", y, perm=_swap_heads(rank))
    split = _split_shape(node.result.type.shape, heads)
    return emitter.reshape(joined, split, node.result.type.shape)


def _attended(emitter: Emitter, node: Node, inputs: Sequence[Name], pieces: int) -> Name:
    """Softmax of the scores, times the values; the queries [..., T, D] in so many pieces."""
    q, k, v, *mask = inputs
    parts = []
    rows = known(node.inputs[0].type.shape[-2]) // pieces if pieces > 1 else 0
    for start in range(0, rows * pieces, rows) if pieces > 1 else [0]:
        some = q
        if pieces > 1:
            bounds = [emitter.integers([n]) for n in (start, start + rows, -2)]
            some = emitter.op("Slice", q, *bounds)
        scores = emitter.op("MatMul", some, k)
        if mask:
            scores = emitter.op("Add", scores, mask[0])
        parts.append(emitter.op("MatMul", emitter.op("Softmax", scores, axis=-1), v))
    return parts[0] if pieces == 1 else emitter.op("Concat", *parts, axis=-2)


def score_pieces(node: Node) -> int:
    """In how many pieces queries are taken, so that their scores stay small.

    A whole score matrix of memory attention has 470 MB; a GPU binds 128 MB, and a cache less.
    """
    queries, keys = node.inputs[0].type.shape[-2], node.inputs[1].type.shape[-2]
    if not isinstance(queries, int):
        return 1
    typical = dict.fromkeys(keys.symbols, _TYPICAL) if isinstance(keys, Expr) else {}
    scores = queries * evaluate(keys, typical) * node.integer("heads")
    pieces = 1
    while scores // pieces > MOST_SCORES and queries % (2 * pieces) == 0:
        pieces *= 2
    return pieces


def _split(emitter: Emitter, x: Name, shape: Shape, heads: int, order: list[int]) -> Name:
    """[..., T, heads*D] as [..., T, heads, D], then its axes in this order."""
    return emitter.op(
        "Transpose", emitter.reshape(x, shape, _split_shape(shape, heads)), perm=order
    )


def _split_shape(shape: Shape, heads: int) -> Shape:
    return (*shape[:-1], heads, known(shape[-1]) // heads)


def _swap_heads(rank: int) -> list[int]:
    """The order of axes that exchanges tokens and heads in a tensor of rank + 1."""
    return [*range(rank - 2), rank - 1, rank - 2, rank]


def _max_pool2d(emitter: Emitter, node: Node, inputs: Sequence[Name]) -> Name:
    kernel, stride = list(node.integers("kernel")), list(node.integers("stride"))
    return emitter.op("MaxPool", inputs[0], kernel_shape=kernel, strides=stride)


def _reduce(emitter: Emitter, node: Node, inputs: Sequence[Name]) -> Name:
    how, keep, dtype = node.text("how"), int(node.flag("keep")), node.inputs[0].type.dtype
    rank = node.inputs[0].type.rank
    axes = [axis % rank for axis in node.integers("axes")]
    x = emitter.cast(inputs[0], "i32") if dtype in _NARROW else inputs[0]
    if how == "argmax":
        return _argmax(emitter, node, x, axes)
    if not axes:
        return inputs[0]
    y = emitter.op(f"Reduce{how.title()}", x, emitter.integers(axes), keepdims=keep)
    return emitter.cast(y, dtype) if dtype in _NARROW else y


def _argmax(emitter: Emitter, node: Node, x: Name, axes: list[int]) -> Name:
    """The first largest, over one axis that holds all of them. Integers are ranked by TopK."""
    shape = node.inputs[0].type.shape
    left = [axis for axis in range(len(shape)) if axis not in axes]
    count: Dim = product(tuple(shape[axis] for axis in axes))
    moved_shape: Shape = tuple(shape[axis] for axis in (*left, *axes))
    flat_shape: Shape = (*(shape[axis] for axis in left), count)
    order = [*left, *axes]
    moved = x if order == list(range(len(shape))) else emitter.op("Transpose", x, perm=order)
    flat = emitter.reshape(moved, moved_shape, flat_shape)
    if node.inputs[0].type.dtype == "i64":
        flat = emitter.cast(flat, "f64")
    best = emitter.op("ArgMax", flat, axis=-1, keepdims=0)
    return emitter.reshape(best, flat_shape[:-1], node.result.type.shape)


def _reshape(emitter: Emitter, node: Node, inputs: Sequence[Name]) -> Name:
    return emitter.reshape(inputs[0], node.inputs[0].type.shape, node.result.type.shape)


def _transpose(emitter: Emitter, node: Node, inputs: Sequence[Name]) -> Name:
    rank = node.result.type.rank
    if rank == 0:
        return inputs[0]
    return emitter.op("Transpose", inputs[0], perm=[axis % rank for axis in node.integers("axes")])


def _concat(emitter: Emitter, node: Node, inputs: Sequence[Name]) -> Name:
    return emitter.op("Concat", *inputs, axis=node.integer("axis") % node.result.type.rank)


def _slice(emitter: Emitter, node: Node, inputs: Sequence[Name]) -> Name:
    starts, ends, steps = node.dims("starts"), node.dims("ends"), node.integers("steps")
    bounds = list(zip(starts, ends, steps, node.inputs[0].type.shape, strict=True))
    cut = [i for i, (a, b, s, n) in enumerate(bounds) if (a, b, s) != (0, n, 1)]
    if not cut:
        return inputs[0]
    return emitter.op(
        "Slice",
        inputs[0],
        emitter.vector([starts[i] for i in cut]),
        emitter.vector([ends[i] for i in cut]),
        emitter.integers(cut),
        emitter.integers([steps[i] for i in cut]),
    )


def _pad(emitter: Emitter, node: Node, inputs: Sequence[Name]) -> Name:
    pads = emitter.integers([*node.integers("before"), *node.integers("after")])
    value = emitter.scalar(node.number("value"), node.result.type.dtype)
    return emitter.op("Pad", inputs[0], pads, value) if node.result.type.rank else inputs[0]


def _expand(emitter: Emitter, node: Node, inputs: Sequence[Name]) -> Name:
    if node.inputs[0].type == node.result.type:
        return inputs[0]
    return emitter.op("Expand", inputs[0], emitter.vector(node.result.type.shape))


def _tile(emitter: Emitter, node: Node, inputs: Sequence[Name]) -> Name:
    counts = node.dims("counts")
    return emitter.op("Tile", inputs[0], emitter.vector(counts)) if counts else inputs[0]


def _cast(emitter: Emitter, node: Node, inputs: Sequence[Name]) -> Name:
    return emitter.cast(inputs[0], node.result.type.dtype)


def _clip(emitter: Emitter, node: Node, inputs: Sequence[Name]) -> Name:
    dtype = node.result.type.dtype
    limits = [emitter.scalar(node.number(key), dtype) for key in ("low", "high")]
    return emitter.op("Clip", inputs[0], *limits)


def _constant(emitter: Emitter, node: Node, _: Sequence[Name]) -> Name:
    return emitter.constant(np.asarray(node.array(), numpy_dtype(node.result.type.dtype)))


LOWER: dict[str, Rule] = {
    "add": _arithmetic("Add"),
    "attention": _attention,
    "cast": _cast,
    "clip": _clip,
    "compare": _compare,
    "concat": _concat,
    "constant": _constant,
    "conv2d": _conv2d,
    "conv_transpose2d": _conv_transpose2d,
    "cos": _plain("Cos"),
    "div": _plain("Div"),
    "exp": _plain("Exp"),
    "expand": _expand,
    "gather": gather,
    "gelu": _plain("Gelu"),
    "layer_norm": _layer_norm,
    "linear": _linear,
    "log": _plain("Log"),
    "matmul": _plain("MatMul"),
    "max_pool2d": _max_pool2d,
    "maximum": _arithmetic("Max"),
    "minimum": _arithmetic("Min"),
    "mul": _arithmetic("Mul"),
    "pad": _pad,
    "reduce": _reduce,
    "relu": _plain("Relu"),
    "reshape": _reshape,
    "resize": resize,
    "sigmoid": _plain("Sigmoid"),
    "sin": _plain("Sin"),
    "slice": _slice,
    "softmax": lambda emitter, node, x: emitter.op("Softmax", *x, axis=node.integer("axis")),
    "sqrt": _plain("Sqrt"),
    "sub": _arithmetic("Sub"),
    "tile": _tile,
    "transpose": _transpose,
    "where": _where,
}

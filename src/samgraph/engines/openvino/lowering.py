"""One OpenVINO node, or a few, for each of our ops. `LOWER` is the table.

A rule gets the node and its inputs as OpenVINO has them. The symbol table makes OpenVINO constants,
or small computations on shapes, of dimensions that may be symbolic.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
import openvino

from samgraph.engines.openvino.library import ElementType, Port, opset15
from samgraph.engines.openvino.symbols import SymbolTable
from samgraph.graph.dims import Dim, Expr, known, product
from samgraph.graph.graph import Node
from samgraph.graph.types import Array, DType, TensorType, numpy_dtype

Rule: TypeAlias = Callable[[SymbolTable, Node, Sequence[Port]], Port]

# Nodes of bf16 run bf16 kernels whatever the precision hint says: products in the precision bf16
# alone. Inputs may be kept in it, moved and cast.
ELEMENT_TYPES: dict[DType, ElementType] = {
    "f32": openvino.Type.f32, "f16": openvino.Type.f16, "i64": openvino.Type.i64,
    "i32": openvino.Type.i32, "u8": openvino.Type.u8, "bool": openvino.Type.boolean,
}  # fmt: skip
STORED_TYPES: dict[DType, ElementType] = {**ELEMENT_TYPES, "bf16": openvino.Type.bf16}


def constant(array: Array) -> Port:
    """An array as a constant, which refers to its memory; of bf16 it has a copy.

    Numpy has no bf16 that OpenVINO knows, and a tensor over the bits would not keep them alive.
    """
    if array.dtype != numpy_dtype("bf16"):
        return opset15.constant(array, shared_memory=array.flags.writeable)
    tensor = openvino.Tensor(openvino.Type.bf16, openvino.Shape(array.shape))
    tensor.data.view(np.uint16)[...] = array.view(np.uint16)
    return opset15.constant(tensor, shared_memory=True)


def empty(type: TensorType) -> Port:
    """A tensor without elements."""
    return constant(np.zeros(type.lengths, numpy_dtype(type.dtype)))


def _plain(function: Callable[..., Port]) -> Rule:
    return lambda _, __, inputs: function(*inputs)


def _numbers(values: Sequence[int] | int) -> Port:
    return opset15.constant(np.array(values, np.int64))


def _linear(_: SymbolTable, node: Node, inputs: Sequence[Port]) -> Port:
    x, weight, *bias = inputs
    y = opset15.matmul(x, weight, False, True)
    if bias:
        y = opset15.add(y, bias[0])
    activation = node.text("activation", "none")
    return y if activation == "none" else _ACTIVATION[activation](y)


def _conv2d(_: SymbolTable, node: Node, inputs: Sequence[Port]) -> Port:
    x, weight, *bias = inputs
    stride, groups = list(node.integers("stride")), node.integer("groups")
    padding = list(node.integers("padding"))
    if groups == 1:
        y = opset15.convolution(x, weight, stride, padding, padding, [1, 1])
    else:
        out, *rest = node.inputs[1].type.lengths
        shape = _numbers([groups, out // groups, *rest])
        grouped = opset15.reshape(weight, shape, False)
        y = opset15.group_convolution(x, grouped, stride, padding, padding, [1, 1])
    return _with_channel_bias(y, bias)


def _conv_transpose2d(_: SymbolTable, node: Node, inputs: Sequence[Port]) -> Port:
    x, weight, *bias = inputs
    stride = list(node.integers("stride"))
    y = opset15.convolution_backprop_data(x, weight, stride, None, [0, 0], [0, 0], [1, 1])
    return _with_channel_bias(y, bias)


def _with_channel_bias(y: Port, bias: Sequence[Port]) -> Port:
    if not bias:
        return y
    return opset15.add(y, opset15.reshape(bias[0], _numbers([1, -1, 1, 1]), False))


def _layer_norm(_: SymbolTable, node: Node, inputs: Sequence[Port]) -> Port:
    x, scale, shift = inputs
    normal = opset15.mvn(x, _numbers([-1]), True, node.number("eps"), "inside_sqrt")
    return opset15.add(opset15.multiply(normal, scale), shift)


def _attention(symbols: SymbolTable, node: Node, inputs: Sequence[Port]) -> Port:
    """Products and a softmax: OpenVINO joins them into one kernel that keeps no score matrix."""
    heads, scale = node.integer("heads"), node.number("scale")
    types = [value.type for value in node.inputs]
    apart = heads > 1 or len(inputs) > 3  # a mask has an axis for the heads
    q, k, v = inputs[:3]
    if apart:
        q, k, v = (_split_heads(symbols, x, types[i], heads) for i, x in enumerate((q, k, v)))
    if scale != 1.0:
        q = opset15.multiply(q, _scalar(scale, node.result.type))
    scores = opset15.matmul(q, k, False, True)
    if len(inputs) > 3:
        scores = opset15.add(scores, inputs[3])
    y = opset15.matmul(
        opset15.softmax(scores, node.result.type.rank - (0 if apart else 1)), v, False, False
    )
    if not apart:
        return y
    joined = opset15.transpose(y, _numbers(_swap_heads(node.result.type.rank)))
    return opset15.reshape(joined, symbols.shape(node.result.type.shape), False)


def _split_heads(symbols: SymbolTable, x: Port, type: TensorType, heads: int) -> Port:
    """[..., T, heads*D] as [..., heads, T, D]."""
    *front, tokens, width = type.shape
    shape = symbols.shape((*front, tokens, heads, known(width) // heads))
    split = opset15.reshape(x, shape, False)
    return opset15.transpose(split, _numbers(_swap_heads(type.rank)))


def _swap_heads(rank: int) -> list[int]:
    """The order of axes that exchanges tokens and heads in a tensor of rank + 1."""
    return [*range(rank - 2), rank - 1, rank - 2, rank]


def _softmax(_: SymbolTable, node: Node, inputs: Sequence[Port]) -> Port:
    return opset15.softmax(inputs[0], node.integer("axis") % node.result.type.rank)


def _max_pool2d(_: SymbolTable, node: Node, inputs: Sequence[Port]) -> Port:
    kernel, stride = list(node.integers("kernel")), list(node.integers("stride"))
    return opset15.max_pool(inputs[0], stride, [1, 1], [0, 0], [0, 0], kernel).output(0)


def _resize(symbols: SymbolTable, node: Node, inputs: Sequence[Port]) -> Port:
    how, antialias = node.text("how"), node.flag("antialias")
    lengths, sizes = node.inputs[0].type.shape[2:], node.result.type.shape[2:]
    if how == "nearest" and not all(map(_doubles, lengths, sizes)):
        rows = _nearest(symbols, inputs[0], 2, lengths[0], sizes[0])
        return _nearest(symbols, rows, 3, lengths[1], sizes[1])
    modes = {"nearest": "nearest", "bilinear": "linear_onnx", "bicubic": "cubic"}
    return opset15.interpolate(
        inputs[0],
        symbols.vector(list(sizes)),
        f"{how}_pillow" if antialias else modes[how],
        "sizes",
        axes=_numbers([2, 3]),
        coordinate_transformation_mode="asymmetric" if how == "nearest" else "half_pixel",
        nearest_mode="floor",
        cube_coeff=-0.5 if antialias else -0.75,
    )


def _doubles(length: Dim, size: Dim) -> bool:
    """Whether the scale is 1, 2, 4, ...: for others OpenVINO rounds positions differently."""
    if isinstance(length, Expr) or isinstance(size, Expr):
        return False
    return size % length == 0 and (size // length).bit_count() == 1


def _nearest(symbols: SymbolTable, x: Port, axis: int, length: Dim, size: Dim) -> Port:
    """The pixels at ``floor(index * length / size)`` along one axis, in float32."""
    count, most = (opset15.convert(symbols.number(n), "f32") for n in (size, length))
    step = opset15.divide(most, count)
    indices = opset15.range(_numbers(0), symbols.number(size), _numbers(1), "i64")
    seen = opset15.floor(opset15.multiply(opset15.convert(indices, "f32"), step))
    last = opset15.subtract(most, opset15.constant(np.float32(1)))
    index = opset15.convert(opset15.minimum(seen, last), "i64")
    return opset15.gather(x, index, _numbers(axis))


def _reduce(symbols: SymbolTable, node: Node, inputs: Sequence[Port]) -> Port:
    how = node.text("how")
    rank = node.inputs[0].type.rank
    axes = [axis % rank for axis in node.integers("axes")]
    if how == "argmax":
        return _argmax(symbols, node, inputs[0], axes)
    total = getattr(opset15, f"reduce_{how}")
    y, left = inputs[0], list(node.inputs[0].type.shape)
    for run in reversed(_neighbours(axes)):
        # A reduction over axes that lie apart has no fast kernel, and reductions in a row are
        # joined to one; as the middle of three axes each run keeps its own.
        front, middle, back = left[: run[0]], left[run[0] : run[-1] + 1], left[run[-1] + 1 :]
        flat = tuple(product(tuple(part)) for part in (front, middle, back))
        y = total(opset15.reshape(y, symbols.shape(flat), False), _numbers([1]), False)
        left = [*front, *back]
    return opset15.reshape(y, symbols.shape(node.result.type.shape), False)


def _neighbours(axes: list[int]) -> list[list[int]]:
    """The axes in runs that lie side by side: [1, 2, 4] -> [[1, 2], [4]]."""
    runs: list[list[int]] = []
    for axis in sorted(axes):
        if runs and runs[-1][-1] == axis - 1:
            runs[-1].append(axis)
        else:
            runs.append([axis])
    return runs


def _argmax(symbols: SymbolTable, node: Node, x: Port, axes: list[int]) -> Port:
    shape = node.inputs[0].type.shape
    left = [axis for axis in range(len(shape)) if axis not in axes]
    moved = opset15.transpose(x, _numbers([*left, *axes]))
    length: Dim = 1
    for axis in axes:
        length = length * shape[axis]
    flat = opset15.reshape(moved, symbols.shape((*(shape[i] for i in left), length)), False)
    one = opset15.constant(np.int64(1))
    best = opset15.topk(flat, one, -1, "max", "value", "i64", True).output(1)
    return opset15.reshape(best, symbols.shape(node.result.type.shape), False)


def _reshape(symbols: SymbolTable, node: Node, inputs: Sequence[Port]) -> Port:
    return opset15.reshape(inputs[0], symbols.shape(node.result.type.shape), False)


def _transpose(_: SymbolTable, node: Node, inputs: Sequence[Port]) -> Port:
    rank = node.result.type.rank
    return opset15.transpose(inputs[0], _numbers([axis % rank for axis in node.integers("axes")]))


def _concat(_: SymbolTable, node: Node, inputs: Sequence[Port]) -> Port:
    return opset15.concat(list(inputs), node.integer("axis") % node.result.type.rank)


def _slice(symbols: SymbolTable, node: Node, inputs: Sequence[Port]) -> Port:
    starts, ends, steps = node.dims("starts"), node.dims("ends"), node.integers("steps")
    shape = node.inputs[0].type.shape
    bounds = list(zip(starts, ends, steps, shape, strict=True))
    cut = [i for i, (a, b, s, n) in enumerate(bounds) if (a, b, s) != (0, n, 1)]
    if not cut:
        return inputs[0]
    return opset15.slice(
        inputs[0],
        symbols.vector([starts[i] for i in cut]),
        symbols.vector([ends[i] for i in cut]),
        _numbers([steps[i] for i in cut]),
        _numbers(cut),
    )


def _pad(_: SymbolTable, node: Node, inputs: Sequence[Port]) -> Port:
    before, after = (_numbers(node.integers(key)) for key in ("before", "after"))
    return opset15.pad(
        inputs[0], before, after, "constant", _scalar(node.number("value"), node.result.type)
    )


def _expand(symbols: SymbolTable, node: Node, inputs: Sequence[Port]) -> Port:
    if node.inputs[0].type == node.result.type:  # a scalar to a scalar crashes OpenVINO
        return inputs[0]
    return opset15.broadcast(inputs[0], symbols.vector(list(node.result.type.shape)))


def _tile(symbols: SymbolTable, node: Node, inputs: Sequence[Port]) -> Port:
    return opset15.tile(inputs[0], symbols.vector(list(node.dims("counts"))))


def _gather(symbols: SymbolTable, node: Node, inputs: Sequence[Port]) -> Port:
    """OpenVINO's gather, with indices clamped and batch axes flattened: it can crash otherwise."""
    x, index = inputs
    shape, rank = node.inputs[0].type.shape, node.inputs[0].type.rank
    axis, batch = node.integer("axis") % rank, node.integer("batch")
    length, zero = symbols.number(shape[axis]), _numbers(0)
    rows = opset15.convert(index, "i64")
    rows = opset15.select(opset15.less(rows, zero), opset15.add(rows, length), rows)
    inside = opset15.logical_and(opset15.greater_equal(rows, zero), opset15.less(rows, length))
    safe = opset15.select(inside, rows, zero)
    if batch:
        y = _gather_rows(symbols, node, x, safe, axis, batch)
    else:
        y = opset15.gather(x, safe, _numbers(axis))
    behind = node.result.type.rank - (rank - axis - 1)
    added = [*range(batch, axis), *range(behind, node.result.type.rank)]
    mask = opset15.unsqueeze(inside, _numbers(added)) if added else inside
    return opset15.select(mask, y, _scalar(0, node.result.type))


def _gather_rows(
    symbols: SymbolTable, node: Node, x: Port, index: Port, axis: int, batch: int
) -> Port:
    """Batch axes and axis become one; row n of the index moves to where row n of `x` starts."""
    shape, taken = node.inputs[0].type.shape, node.inputs[1].type.rank
    others = [*range(batch, axis), *range(axis + 1, len(shape))]
    moved = opset15.transpose(x, _numbers([*range(batch), axis, *others]))
    rows = product(shape[:batch])
    flat = symbols.shape((rows * shape[axis], *(shape[i] for i in others)))
    counted = opset15.range(_numbers(0), symbols.number(rows), _numbers(1), "i64")
    starts = opset15.multiply(counted, symbols.number(shape[axis]))
    fitting = symbols.shape((*shape[:batch], *(1,) * (taken - batch)))
    indices = opset15.add(index, opset15.reshape(starts, fitting, False))
    y = opset15.gather(opset15.reshape(moved, flat, False), indices, _numbers(0))
    between = axis - batch  # axes before those of the index in the result
    order = [*range(batch), *range(taken, taken + between), *range(batch, taken)]
    rest = range(taken + between, node.result.type.rank)
    return opset15.transpose(y, _numbers([*order, *rest])) if between else y


def _cast(_: SymbolTable, node: Node, inputs: Sequence[Port]) -> Port:
    return opset15.convert(inputs[0], STORED_TYPES[node.result.type.dtype].to_string())


def _clip(_: SymbolTable, node: Node, inputs: Sequence[Port]) -> Port:
    return opset15.clamp(inputs[0], node.number("low"), node.number("high"))


def _constant(_: SymbolTable, node: Node, __: Sequence[Port]) -> Port:
    return constant(node.array())


def _scalar(value: float, type: TensorType) -> Port:
    return opset15.constant(value, STORED_TYPES[type.dtype])


_ACTIVATION: dict[str, Callable[[Port], Port]] = {
    "relu": opset15.relu,
    "gelu": lambda x: opset15.gelu(x, "erf"),
    "sigmoid": opset15.sigmoid,
}
_COMPARE = {
    "eq": opset15.equal, "ne": opset15.not_equal, "lt": opset15.less,
    "le": opset15.less_equal, "gt": opset15.greater, "ge": opset15.greater_equal,
}  # fmt: skip

LOWER: dict[str, Rule] = {
    "add": _plain(opset15.add),
    "attention": _attention,
    "cast": _cast,
    "clip": _clip,
    "compare": lambda _, node, inputs: _COMPARE[node.text("how")](*inputs),
    "concat": _concat,
    "constant": _constant,
    "conv2d": _conv2d,
    "conv_transpose2d": _conv_transpose2d,
    "cos": _plain(opset15.cos),
    "div": _plain(opset15.divide),
    "exp": _plain(opset15.exp),
    "expand": _expand,
    "gather": _gather,
    "gelu": _plain(_ACTIVATION["gelu"]),
    "layer_norm": _layer_norm,
    "linear": _linear,
    "log": _plain(opset15.log),
    "matmul": lambda _, __, inputs: opset15.matmul(*inputs, False, False),
    "max_pool2d": _max_pool2d,
    "maximum": _plain(opset15.maximum),
    "minimum": _plain(opset15.minimum),
    "mul": _plain(opset15.multiply),
    "pad": _pad,
    "reduce": _reduce,
    "relu": _plain(opset15.relu),
    "reshape": _reshape,
    "resize": _resize,
    "sigmoid": _plain(opset15.sigmoid),
    "sin": _plain(opset15.sin),
    "slice": _slice,
    "softmax": _softmax,
    "sqrt": _plain(opset15.sqrt),
    "sub": _plain(opset15.subtract),
    "tile": _tile,
    "transpose": _transpose,
    "where": _plain(opset15.select),
}

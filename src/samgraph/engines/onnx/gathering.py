"""`gather` in ONNX, whose own refuses indices outside the axis: they are clamped, then masked."""

from collections.abc import Sequence

import numpy as np

from samgraph.engines.onnx.emitter import Emitter, Name
from samgraph.graph.dims import Dim
from samgraph.graph.graph import Node
from samgraph.graph.types import DType

# Dtypes that `Where` has kernels for in all runtimes; others are masked as float32.
_MASKED: frozenset[DType] = frozenset(("f32", "i64", "i32", "u8"))


def gather(emitter: Emitter, node: Node, inputs: Sequence[Name]) -> Name:
    """Elements along an axis; zeros for indices that are outside."""
    x, index = inputs
    rank = node.inputs[0].type.rank
    axis, batch = node.integer("axis") % rank, node.integer("batch")
    length = node.inputs[0].type.shape[axis]
    if _is_inside(emitter, index, length):
        return _taken(emitter, node, x, index, axis, batch)
    zero, count = emitter.constant(np.array(0, np.int64)), emitter.number(length)
    rows = emitter.cast(index, "i64") if node.inputs[1].type.dtype != "i64" else index
    from_end = emitter.op("Less", rows, zero)
    rows = emitter.op("Where", from_end, emitter.op("Add", rows, count), rows)
    inside = emitter.op(
        "And", emitter.op("GreaterOrEqual", rows, zero), emitter.op("Less", rows, count)
    )
    y = _taken(emitter, node, x, emitter.op("Where", inside, rows, zero), axis, batch)
    behind = node.result.type.rank - (rank - axis - 1)
    added = [*range(batch, axis), *range(behind, node.result.type.rank)]
    mask = emitter.op("Unsqueeze", inside, emitter.integers(added)) if added else inside
    return _masked(emitter, mask, y, node.result.type.dtype)


def _masked(emitter: Emitter, mask: Name, y: Name, dtype: DType) -> Name:
    if dtype in _MASKED:
        return emitter.op("Where", mask, y, emitter.scalar(0, dtype))
    wide = emitter.op("Where", mask, emitter.cast(y, "f32"), emitter.scalar(0, "f32"))
    return emitter.cast(wide, dtype)


def _is_inside(emitter: Emitter, index: Name, length: Dim) -> bool:
    """Whether the index is an array of positions that exist."""
    if index not in emitter.arrays or not isinstance(length, int):
        return False
    array = emitter.arrays[index]
    return bool(np.all((array >= 0) & (array < length)))


def _taken(emitter: Emitter, node: Node, x: Name, index: Name, axis: int, batch: int) -> Name:
    """Elements along `axis`; every index is inside."""
    if not batch:
        return emitter.op("Gather", x, index, axis=axis)
    rank, taken = node.inputs[0].type.rank, node.inputs[1].type.rank
    others = [*range(batch, axis), *range(axis + 1, rank)]
    moved = x
    if axis != batch:
        moved = emitter.op("Transpose", x, perm=[*range(batch), axis, *others])
    rows = emitter.op("Unsqueeze", index, emitter.integers([-1]))
    y = emitter.op("GatherND", moved, rows, batch_dims=batch)
    between = axis - batch  # axes before those of the index in the result
    if not between:
        return y
    order = [*range(batch), *range(taken, taken + between), *range(batch, taken)]
    return emitter.op("Transpose", y, perm=[*order, *range(taken + between, node.result.type.rank)])

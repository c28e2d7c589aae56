"""`resize` in ONNX: to the nearest pixel a gather along each axis, else products or `Resize`."""

from collections.abc import Sequence

import numpy as np

from samgraph.engines.onnx.emitter import Emitter, Name
from samgraph.graph.dims import Dim
from samgraph.graph.graph import Node
from samgraph.graph.types import DType, numpy_dtype
from samgraph.ops.resize import weights

_MODES = {"bilinear": "linear", "bicubic": "cubic"}


def resize(emitter: Emitter, node: Node, inputs: Sequence[Name]) -> Name:
    """The image at another size."""
    how, antialias = node.text("how"), node.flag("antialias")
    lengths, sizes = node.inputs[0].type.shape[2:], node.result.type.shape[2:]
    y = inputs[0]
    if how == "nearest":
        for axis, length, size in zip((2, 3), lengths, sizes, strict=True):
            y = emitter.op("Gather", y, _nearest(emitter, length, size), axis=axis)
        return y
    if antialias and all(isinstance(dim, int) for dim in (*lengths, *sizes)):
        return _products(emitter, node, y)
    return emitter.op(
        "Resize",
        y,
        "",
        "",
        emitter.vector(sizes),
        mode=_MODES[how],
        axes=[2, 3],
        antialias=int(antialias),
        exclude_outside=int(antialias),  # pixels beyond the edge count as nothing
        coordinate_transformation_mode="half_pixel",
        cubic_coeff_a=-0.5 if antialias else -0.75,
    )


def _products(emitter: Emitter, node: Node, x: Name) -> Name:
    """A product with the weights of each axis."""
    how, dtype = node.text("how"), numpy_dtype(node.result.type.dtype)
    before, after = node.inputs[0].type, node.result.type
    rows, columns = (
        weights(before.length(axis), after.length(axis), how, True).astype(dtype) for axis in (2, 3)
    )
    tall = emitter.op("MatMul", emitter.constant(rows), x)
    return emitter.op("MatMul", tall, emitter.constant(np.ascontiguousarray(columns.T)))


def _nearest(emitter: Emitter, length: Dim, size: Dim) -> Name:
    """The index ``floor(i * length / size)`` of each pixel, in float32."""
    if isinstance(length, int) and isinstance(size, int):
        return emitter.integers(weights(length, size, "nearest", False).argmax(1).tolist())
    wide: DType = "f32"
    count, most = (emitter.cast(emitter.number(n), wide) for n in (size, length))
    zero, one = (emitter.constant(np.array(n, np.int64)) for n in (0, 1))
    positions = emitter.cast(emitter.op("Range", zero, emitter.number(size), one), wide)
    seen = emitter.op("Floor", emitter.op("Mul", positions, emitter.op("Div", most, count)))
    last = emitter.op("Sub", most, emitter.scalar(1, wide))
    return emitter.cast(emitter.op("Min", seen, last), "i64")

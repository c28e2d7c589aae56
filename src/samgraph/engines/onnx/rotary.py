"""`axial_rope` as RotaryEmbedding, which ONNX has from opset 23 on."""

from collections.abc import Sequence

from samgraph.engines.onnx.emitter import Emitter, Name
from samgraph.errors import EngineError
from samgraph.graph.dims import divide
from samgraph.graph.graph import Node
from samgraph.graph.types import numpy_dtype
from samgraph.ops.axial_rope import rotation_tables

OPSET = 23


def axial_rope(emitter: Emitter, node: Node, inputs: Sequence[Name]) -> Name:
    """Tokens [N, T, C], each rotated by its row of two tables [N, T, D/2]."""
    if node.inputs[0].type.rank != 3:
        raise EngineError("RotaryEmbedding needs tokens of three axes", got=node.inputs[0].type)
    key = (node.inputs[0].type, *sorted(node.attributes.items()))
    if key not in emitter.shared:
        emitter.shared[key] = _tables(emitter, node)
    heads, tables = node.integer("heads"), emitter.shared[key]
    return emitter.op("RotaryEmbedding", inputs[0], *tables, interleaved=1, num_heads=heads)


def _tables(emitter: Emitter, node: Node) -> list[Name]:
    """Cosines and sines of every token; those that are not rotated have an angle of zero."""
    type, (height, width) = node.inputs[0].type, node.integers("grid")
    unrotated, cells = node.dim("unrotated"), height * width
    frames = divide(type.shape[-2] - unrotated, cells)
    if frames is None:
        raise AssertionError("the type rule of axial_rope lets only whole frames through")
    size, made = type.length(-1) // node.integer("heads"), []
    tables = rotation_tables((height, width), size, node.number("theta"))
    for table, rest in zip(tables, (1, 0), strict=True):
        rows = emitter.constant(table.astype(numpy_dtype(type.dtype))[None])
        if frames != 1:
            rows = emitter.op("Tile", rows, emitter.vector([1, frames, 1]))
        if unrotated != 0:
            still = emitter.scalar(rest, type.dtype)
            shape = emitter.vector([1, unrotated, size // 2])
            rows = emitter.op("Concat", rows, emitter.op("Expand", still, shape), axis=1)
        whole = emitter.vector([*type.shape[:2], size // 2])
        made.append(emitter.op("Expand", rows, whole) if type.shape[0] != 1 else rows)
    return made

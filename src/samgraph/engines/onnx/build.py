"""The ONNX model of a graph and its weights."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper

from samgraph.engines.onnx.emitter import ELEMENT_TYPES, Emitter
from samgraph.engines.onnx.lowering import LOWER
from samgraph.engines.onnx.rotary import axial_rope
from samgraph.graph.dims import Shape
from samgraph.graph.graph import Graph
from samgraph.graph.types import Array, TensorType, numpy_dtype

OPSET = 21
IR_VERSIONS = {21: 10, 22: 10, 23: 11}  # the ONNX IR that came with each opset
OPSETS = tuple(IR_VERSIONS)


def build(
    graph: Graph,
    weights: Mapping[str, Array],
    *,
    opset: int = OPSET,
    allows_empty: bool = True,
    half_weights: bool = False,
) -> Any:
    """The `onnx.ModelProto` of a graph that has only ops with a rule, weights inside.

    With `allows_empty=False` axes of symbolic length are at least one long. Outputs have the order
    of the graph's; one that is named like an input or a weight is called `NAME:output`. With
    `half_weights`, large arrays of float32 are stored in f16 and cast when the model is loaded.
    """
    emitter = Emitter(graph, weights, opset, allows_empty=allows_empty)
    made = {value.name: value.name for value in (*graph.inputs, *graph.params)}
    for node in graph:
        type = node.result.type
        if 0 in type.shape and not type.symbols:
            empty = np.zeros(type.lengths, numpy_dtype(type.dtype))
            made[node.result.name] = emitter.constant(empty)
            continue
        inputs = [made[value.name] for value in node.inputs]
        rule = axial_rope if node.op == "axial_rope" else LOWER[node.op]
        made[node.result.name] = rule(emitter, node, inputs)
    taken = {value.name for value in (*graph.inputs, *graph.params)}
    outputs = [
        (f"{name}:output" if name in taken else name, made[value.name], value.type)
        for name, value in graph.outputs
    ]
    emitter.finish(outputs)
    if half_weights:
        emitter.store_halves()
    return helper.make_model(
        helper.make_graph(
            emitter.nodes,
            graph.name,
            [declared(value.name, value.type) for value in graph.inputs],
            [declared(name, type) for name, _, type in outputs],
            [tensor(name, array) for name, array in emitter.arrays.items()],
        ),
        opset_imports=[helper.make_opsetid("", opset)],
        ir_version=IR_VERSIONS[opset],
        producer_name="samgraph",
    )


def declared(name: str, type: TensorType) -> Any:
    """An input or output of a model: symbolic lengths are named."""
    shape: Sequence[int | str] = _named(type.shape)
    return helper.make_tensor_value_info(name, ELEMENT_TYPES[type.dtype], shape)


def tensor(name: str, array: Array) -> Any:
    """An array as an initializer."""
    made = onnx.TensorProto()
    made.name = name
    made.data_type = helper.np_dtype_to_tensor_dtype(array.dtype)
    made.dims.extend(array.shape)
    made.raw_data = np.asarray(array, order="C").tobytes()
    return made


def _named(shape: Shape) -> list[int | str]:
    return [dim if isinstance(dim, int) else str(dim) for dim in shape]

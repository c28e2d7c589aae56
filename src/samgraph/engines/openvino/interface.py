"""Transposes at the edge of a graph, done by the strides of an array instead of by OpenVINO.

    transpose(%x, axes=(0,2,3,1))      an input [B, C, H, W] that is only read so
    transpose(%y, axes=(0,3,1,2))      an output [B, C, H, W] that is made so

The model reads and writes [B, H, W, C]; the caller sees [B, C, H, W]; both in the same memory. See
`passes/expose_channels_last.py`, which puts the transposes there.
"""

from dataclasses import dataclass

from samgraph.graph.graph import Graph, Value
from samgraph.passes.pointwise_to_linear import CHANNELS_LAST, CHANNELS_SECOND, is_transpose
from samgraph.passes.rewriter import Rewriter

_FEWEST = 8  # channels of a feature map; RGB images stay channels-second


@dataclass(frozen=True, slots=True)
class Stripped:
    """A graph without the transposes at its edge, and the inputs and outputs that had one."""

    graph: Graph
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


def strip_transposes(graph: Graph) -> Stripped:
    """Take the transposes of feature maps off the inputs and outputs."""
    inputs = _read_channels_last(graph)
    producers = graph.producers()
    outputs = {name for name, value in graph.outputs if is_stripped_output(graph, value)}
    if not inputs and not outputs:
        return Stripped(graph, (), ())
    moved = tuple(_channels_last(v) if v.name in inputs else v for v in graph.inputs)
    new = {value.name: value for value in moved}
    rewriter = Rewriter(Graph(graph.name, moved, graph.params, graph.nodes, graph.outputs))
    for node in graph:
        if node.inputs and node.inputs[0].name in inputs:
            rewriter.replace(node.result, new[node.inputs[0].name])
        else:
            rewriter.keep(node)
    ends = tuple(
        (name, rewriter.new(producers[value.name].inputs[0] if name in outputs else value))
        for name, value in graph.outputs
    )
    return Stripped(rewriter.finish(ends), tuple(sorted(inputs)), tuple(sorted(outputs)))


def is_feature_map(value: Value) -> bool:
    """Whether a value is a map [B, C, H, W] of more channels than an RGB image."""
    shape = value.type.shape
    return len(shape) == 4 and isinstance(shape[1], int) and shape[1] >= _FEWEST


def is_stripped_output(graph: Graph, value: Value) -> bool:
    """Whether a value, as an output, leaves OpenVINO channels-last."""
    node = graph.producers().get(value.name)
    return node is not None and is_feature_map(value) and is_transpose(node, CHANNELS_SECOND)


def _read_channels_last(graph: Graph) -> set[str]:
    """The feature maps among the inputs that nodes read through a transpose only."""
    found = {value.name for value in graph.inputs if is_feature_map(value)}
    read: set[str] = set()
    for node in graph:
        names = {value.name for value in node.inputs}
        read |= names
        if not is_transpose(node, CHANNELS_LAST):
            found -= names
    return (found & read) - {value.name for _, value in graph.outputs}


def _channels_last(value: Value) -> Value:
    shape = value.type.shape
    return Value(value.name, value.type.reshaped(shape[axis] for axis in CHANNELS_LAST))

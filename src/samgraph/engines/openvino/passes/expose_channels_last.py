"""expose_channels_last: feature maps enter and leave a graph through a transpose at its edge.

    %0 = conv2d(%x, ...) [B,C,H,W]    =>    %0 = transpose(%x, axes=(0,2,3,1))
    return y=%0                             %1 = transpose(%0, axes=(0,3,1,2))
                                            %2 = conv2d(%1, ...)
                                            %3 = transpose(%2, axes=(0,2,3,1))
                                            %4 = transpose(%3, axes=(0,3,1,2))
                                            return y=%4

The outer two are left to the strides of an array (see `interface.py`), the inner two to OpenVINO,
which computes on images channels-last anyway: none of the four moves anything. Without them a map
that goes from one graph to the next (the embedding of a frame, from the image encoder to memory
attention, decoder and memory encoder) would be moved to channels-second and back each time. At
1024 pixels the decoder takes 10 % less, the memory encoder 1 %.

Only inputs that convolutions and such transposes alone read, and outputs that convolutions make or
sums of those. An array that is given channels-second is moved by numpy, which takes twice as long
as OpenVINO.
"""

from samgraph.engines.openvino.interface import is_feature_map
from samgraph.graph.graph import Graph, Node, Value
from samgraph.passes.pointwise_to_linear import CHANNELS_LAST, CHANNELS_SECOND, is_transpose
from samgraph.passes.rewriter import Rewriter


def expose_channels_last(graph: Graph) -> Graph:
    """Put a pair of transposes where a feature map enters or leaves."""
    inputs, outputs = _inputs(graph), _outputs(graph)
    if not inputs and not outputs:
        return graph
    rewriter = Rewriter(graph)
    last: dict[str, Value] = {}
    for value in graph.inputs:
        if value.name in inputs:
            exact = inputs[value.name]
            last[value.name] = rewriter.emit("transpose", value, exact=exact, axes=CHANNELS_LAST)
            image = rewriter.emit("transpose", last[value.name], exact=exact, axes=CHANNELS_SECOND)
            rewriter.replace(value, image)
    for node in graph:
        if is_transpose(node, CHANNELS_LAST) and node.inputs[0].name in last:
            rewriter.replace(node.result, last[node.inputs[0].name])
        else:
            rewriter.keep(node)
    left = {
        name: _leave(rewriter, rewriter.new(node.result), node) for name, node in outputs.items()
    }
    ends = tuple((name, left.get(value.name, rewriter.new(value))) for name, value in graph.outputs)
    return rewriter.finish(ends)


def _leave(rewriter: Rewriter, value: Value, node: Node) -> Value:
    for axes in (CHANNELS_LAST, CHANNELS_SECOND):
        value = rewriter.emit("transpose", value, exact=node.exact, axes=axes)
    return value


def _inputs(graph: Graph) -> dict[str, bool]:
    """The inputs that convolutions read, and whether an exact one does."""
    readers: dict[str, list[Node]] = {v.name: [] for v in graph.inputs if is_feature_map(v)}
    for node in graph:
        for name in {value.name for value in node.inputs}:
            readers.get(name, []).append(node)
    return {
        name: any(node.exact for node in nodes)
        for name, nodes in readers.items()
        if any(node.op == "conv2d" for node in nodes)
        and all(_reads_channels_last(node, name) for node in nodes)
    }


def _reads_channels_last(node: Node, name: str) -> bool:
    if node.op == "conv2d":
        return all(value.name != name for value in node.inputs[1:])
    return is_transpose(node, CHANNELS_LAST)


def _outputs(graph: Graph) -> dict[str, Node]:
    """The nodes that make an output which OpenVINO has channels-last, by their result."""
    made: dict[str, Node] = {}
    for node in graph:
        moved = node.op == "conv2d" or is_transpose(node, CHANNELS_SECOND)
        if moved or (node.op == "add" and any(value.name in made for value in node.inputs)):
            made[node.result.name] = node
    ends = [value for _, value in graph.outputs if is_feature_map(value) and value.name in made]
    nodes = {value.name: made[value.name] for value in ends}
    return {name: node for name, node in nodes.items() if node.op != "transpose"}

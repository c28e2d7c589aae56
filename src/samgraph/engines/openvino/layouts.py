"""A detour for maps that come from outside or leave: their channels stand last in memory.

    %0 = conv2d(%x, ...) [B,C,H,W]    =>    %0 = transpose(%x, axes=(0,3,1,2))
    return y=%0                             %1 = conv2d(%0, ...)
                                            %2 = transpose(%1, axes=(0,2,3,1))
                                            return y=%2

OpenVINO computes on images with their channels last, and so does a transformer on its tokens. A
map that goes from one graph to the next (the embedding of a frame, from the image encoder to
memory attention, decoder and memory encoder) would be moved to channels second and back each
time. It need not: an array of numpy has strides. The caller sees [B, C, H, W], OpenVINO reads and
writes [B, H, W, C], both in the same memory, and the transpositions above cost nothing. At 1024
pixels the decoder takes 10 % less, the memory encoder 1 %.

A map that comes with its channels second is moved by numpy, which takes twice as long as OpenVINO.
"""

from samgraph.graph.graph import Graph, Node, Value
from samgraph.passes.pointwise_to_linear import CHANNELS_LAST, CHANNELS_SECOND
from samgraph.passes.rewriter import Rewriter
from samgraph.passes.simplify_movement import simplify_movement

_FEWEST = 8  # pictures, of three channels, come with these second


def turn_maps(graph: Graph) -> tuple[Graph, frozenset[str], frozenset[str]]:
    """The graph whose maps come and leave as [B, H, W, C]; these inputs, these outputs."""
    readers: dict[str, list[Node]] = {value.name: [] for value in graph.inputs if _is_map(value)}
    for node in graph:
        for value in set(node.inputs):
            readers.get(value.name, []).append(node)
    coming = {
        name
        for name, nodes in readers.items()
        if nodes and all(_reads_last(node, name) for node in nodes)
    }
    made: dict[str, Node] = {}
    for node in graph:
        if _makes_last(node) or (node.op == "add" and any(v.name in made for v in node.inputs)):
            made[node.result.name] = node
    leaving = {name for name, value in graph.outputs if _is_map(value) and value.name in made}
    inputs = tuple(_turned(value) if value.name in coming else value for value in graph.inputs)
    rewriter = Rewriter(Graph(graph.name, inputs, graph.params, graph.nodes, graph.outputs))
    for old, new in zip(graph.inputs, inputs, strict=True):
        if new is not old:
            exact = any(node.exact for node in readers[old.name])
            image = rewriter.emit("transpose", new, exact=exact, axes=CHANNELS_SECOND)
            rewriter.replace(old, image)
    for node in graph:
        rewriter.keep(node)
    outputs = []
    for name, value in graph.outputs:
        new = rewriter.new(value)
        if name in leaving:
            exact = made[value.name].exact
            new = rewriter.emit("transpose", new, exact=exact, axes=CHANNELS_LAST)
        outputs.append((name, new))
    turned = simplify_movement(rewriter.finish(tuple(outputs)))
    return turned, frozenset(coming), frozenset(leaving)


def _is_map(value: Value) -> bool:
    shape = value.type.shape
    return len(shape) == 4 and isinstance(shape[1], int) and shape[1] >= _FEWEST


def _turned(value: Value) -> Value:
    shape = value.type.shape
    return Value(value.name, value.type.reshaped(shape[axis] for axis in CHANNELS_LAST))


def _reads_last(node: Node, name: str) -> bool:
    """Whether a node that reads a map wants its channels last."""
    if node.op == "conv2d":
        return all(value.name != name for value in node.inputs[1:])
    return _is_transpose(node, CHANNELS_LAST)


def _makes_last(node: Node) -> bool:
    """Whether a node makes a map whose channels OpenVINO has last."""
    return node.op == "conv2d" or _is_transpose(node, CHANNELS_SECOND)


def _is_transpose(node: Node, axes: tuple[int, ...]) -> bool:
    return node.op == "transpose" and node.integers("axes") == axes

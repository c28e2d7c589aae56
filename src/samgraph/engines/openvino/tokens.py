"""A detour for maps with their channels last, which OpenVINO takes for images.

It lays an image out in memory with its second axis last, wherever it adds two of them; a map whose
last axis is the channels is moved there and back around every sum. As tokens it stays where it is:

    %0 = add(%x, %y) [B,H,W,C]   =>   %0 = reshape(%x, shape=(B,H*W,C))
                                      %1 = reshape(%y, shape=(B,H*W,C))
                                      %2 = add(%0, %1)
                                      %3 = reshape(%2, shape=(B,H,W,C))

The norms and linear maps before and after go the same way, so that no reshape is left between
them. At 1024 pixels the image encoder takes 3 to 6 % less. Where a length is a symbol only norms
do: OpenVINO has no kernel for those of more than three axes.
"""

from samgraph.graph.dims import product
from samgraph.graph.graph import Graph, Node, Value
from samgraph.passes.rewriter import Rewriter, rewrite
from samgraph.passes.simplify_movement import simplify_movement

_CHANNELS_LAST = ("layer_norm", "linear")


def as_tokens(graph: Graph) -> Graph:
    """The same graph, in which maps with their channels last are tokens [B, T, C]."""
    near = [node for node in graph if node.op in _CHANNELS_LAST]
    last = {value.name for node in near for value in (node.inputs[0], node.result)}
    maps = {node.result.name for node in graph if _is_map(node, last)}
    if not maps:
        return graph
    return simplify_movement(rewrite(graph, maps, _on_tokens))


def _is_map(node: Node, last: set[str]) -> bool:
    """A norm or a linear map of four axes or more, or a sum next to one."""
    type = node.result.type
    if type.rank < 4 or (type.symbols and node.op != "layer_norm"):
        return False
    if node.op != "add":
        return node.op in _CHANNELS_LAST
    alike = all(value.type.shape[1:] == type.shape[1:] for value in node.inputs)
    return alike and not last.isdisjoint({node.result.name, *(v.name for v in node.inputs)})


def _on_tokens(rewriter: Rewriter, node: Node) -> Value:
    shape, exact = node.result.type.shape, node.exact
    inputs = [rewriter.new(value) for value in node.inputs]
    for i, value in enumerate(inputs):
        if value.type.rank == len(shape):  # not the weights
            first, *grid, channels = value.type.shape
            tokens = (first, product(tuple(grid)), channels)
            inputs[i] = rewriter.emit("reshape", value, exact=exact, shape=tokens)
    y = rewriter.emit(node.op, *inputs, exact=exact, **node.attributes)
    return rewriter.emit("reshape", y, exact=exact, shape=shape)

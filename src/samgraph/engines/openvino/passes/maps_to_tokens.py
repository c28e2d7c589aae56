"""maps_to_tokens: sums, norms and linear layers of channels-last maps run over tokens.

    %0 = add(%x, %y) [B,H,W,C]   =>   %0 = reshape(%x, shape=(B,H*W,C))
    return z=%0                       %1 = reshape(%y, shape=(B,H*W,C))
                                      %2 = add(%0, %1)
                                      %3 = reshape(%2, shape=(B,H,W,C))
                                      return z=%3

OpenVINO takes any tensor of four axes for an image and, wherever it adds two of them, lays it out
with its second axis last in memory; a channels-last map is moved there and back around every sum.
As tokens it stays as it is. The norms and linear layers before and after go the same way, so that
no reshape is left between them. At 1024 pixels the image encoder takes 3 to 6 % less. Where a
length is a symbol only norms do: OpenVINO has no kernel for those of more than three axes.
"""

from samgraph.graph.dims import product
from samgraph.graph.graph import Graph, Node, Value
from samgraph.passes.fold_params import foldable
from samgraph.passes.rewriter import Rewriter, rewrite

_CHANNELS_LAST = ("layer_norm", "linear")


def maps_to_tokens(graph: Graph) -> Graph:
    """Rewrite each node of a channels-last map [B, H, W, C] to one of tokens [B, T, C]."""
    if not graph.has(*_CHANNELS_LAST):
        return graph
    folding = foldable(graph)
    nodes = [node for node in graph if node.result.name not in folding]
    near = [node for node in nodes if node.op in _CHANNELS_LAST]
    last = {value.name for node in near for value in (node.inputs[0], node.result)}
    maps = {node.result.name for node in nodes if _is_map(node, last)}
    return rewrite(graph, maps, _on_tokens) if maps else graph


def _is_map(node: Node, last: set[str]) -> bool:
    """A norm or a linear layer of four axes or more, or a sum next to one."""
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

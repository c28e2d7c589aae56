"""maps_channels_last: pointwise convolutions, sums and repetitions of maps work on their tokens.

    %0 = conv2d(%x, %w, %b)              a 1 x 1 kernel      %0 = transpose(%x)       [N, H, W, C]
    %1 = add(%0, transpose(%y))                         =>   %1 = linear(%0, %w, %b)
    return z=%1                                              %2 = add(%1, %y)
                                                             return z=transpose(%2)   [N, C, H, W]

A transposition is a view here, and a linear layer absorbs the
addition after it (`fuse_linears`), which a convolution does not.
"""

from samgraph.engines.torch.passes.layers import Search, width
from samgraph.graph.graph import Graph, Node, Value
from samgraph.passes.rewriter import Rewriter

_LAST, _SECOND = (0, 2, 3, 1), (0, 3, 1, 2)


def maps_channels_last(graph: Graph) -> Graph:
    """Rewrite every such node."""
    if not graph.has("conv2d", "resize"):
        return graph
    search, rewriter = Search(graph), Rewriter(graph)
    twins: dict[str, Value] = {}  # old map -> the same channels-last, in the new graph

    def twin(value: Value) -> Value:
        if value.name not in twins:
            twins[value.name] = rewriter.emit("transpose", rewriter.new(value), axes=_LAST)
        return twins[value.name]

    for node in graph:
        if node.op == "transpose" and node.attributes["axes"] == _SECOND:
            rewriter.keep(node)
            twins[node.result.name] = rewriter.new(node.inputs[0])
            continue
        made = None
        if node.op == "conv2d" and _is_pointwise(search, node):
            made = _linear(rewriter, node, twin(node.inputs[0]))
        elif _joins(node, twins):
            made = rewriter.emit(node.op, *(twin(value) for value in node.inputs))
        elif node.op == "tile" and _repeats(node) and node.inputs[0].name in twins:
            x = twin(node.inputs[0])
            shape = (node.result.type.shape[0], *x.type.shape[1:])
            made = rewriter.emit("expand", x, shape=shape)
        elif node.op == "resize" and node.inputs[0].name in twins:
            made = _repeated(rewriter, node, twin(node.inputs[0]))
        if made is None:
            rewriter.keep(node)
            continue
        twins[node.result.name] = made
        rewriter.replace(node.result, rewriter.emit("transpose", made, axes=_SECOND))
    return rewriter.finish()


def _is_pointwise(search: Search, node: Node) -> bool:
    given = node.attributes
    plain = given["stride"] == (1, 1) and given["padding"] == (0, 0) and given["groups"] == 1
    fixed = all(value.name in search.weights for value in node.inputs[1:])
    return plain and fixed and not node.exact and node.inputs[1].type.shape[2:] == (1, 1)


def _linear(rewriter: Rewriter, node: Node, x: Value) -> Value:
    out, ins = width(node.inputs[1], 0), width(node.inputs[1], 1)
    weight = rewriter.emit("reshape", rewriter.new(node.inputs[1]), shape=(out, ins))
    biases = [rewriter.new(value) for value in node.inputs[2:]]
    return rewriter.emit("linear", x, weight, *biases)


def _repeated(rewriter: Rewriter, node: Node, x: Value) -> Value | None:
    """A map in which each pixel is repeated, if that is what a resize does."""
    B, H, W, C = x.type.shape
    size, sides = node.attributes["size"], (H, W)
    if node.attributes["how"] != "nearest" or not isinstance(size, tuple):
        return None
    times = [int(str(large)) // int(str(side)) for large, side in zip(size, sides, strict=True)]
    whole = [int(str(side)) * count for side, count in zip(sides, times, strict=True)]
    if whole != list(size) or any(count & (count - 1) for count in times):
        return None
    split = rewriter.emit("reshape", x, shape=(B, H, 1, W, 1, C))
    wide = rewriter.emit("expand", split, shape=(B, H, times[0], W, times[1], C))
    return rewriter.emit("reshape", wide, shape=(B, *whole, C))


def _joins(node: Node, twins: dict[str, Value]) -> bool:
    """Whether it is a sum of two equal maps, one of which is channels-last already."""
    if node.op != "add" or node.result.type.rank != 4 or node.exact:
        return False
    same = all(value.type == node.result.type for value in node.inputs)
    return same and any(value.name in twins for value in node.inputs)


def _repeats(node: Node) -> bool:
    """Whether it repeats one map for several objects."""
    counts = node.attributes["counts"]
    once = isinstance(counts, tuple) and counts[1:] == (1, 1, 1)
    return once and node.inputs[0].type.rank == 4 and node.inputs[0].type.shape[0] == 1

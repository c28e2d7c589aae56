"""merge_depthwise: depthwise convolutions of one map, and the map itself, summed, are one.

    %0 = conv2d(%x, %w3, %b3)           %0 = pad(%w1)
    %1 = conv2d(%x, %w1, %b1)           %1 = add(%w3, %0)
    %2 = add(%0, %1)             =>     %2 = add(%b3, %b1)
    %3 = add(%2, %x)                    %3 = add(%1, constant)      1 at the centre of each kernel
    return y=%3                         %4 = conv2d(%x, %3, %2)
                                        return y=%4

The branches of a RepViT block, re-parameterised. Kernels are odd and padded to the size of the
map; the smaller one gets zeros around it. Only where nothing else reads the terms.
"""

import numpy as np

from samgraph.graph.graph import Graph, Node, Value
from samgraph.passes.fold_params import foldable
from samgraph.passes.rewriter import Rewriter


def merge_depthwise(graph: Graph) -> Graph:
    """Merge the terms of each sum that are depthwise convolutions of the same map."""
    if not graph.has("conv2d"):
        return graph
    rewriter = Rewriter(graph)
    uses, folding = graph.use_counts(), foldable(graph)
    for node in graph:
        merged = None
        if node.op == "add" and node.result.name not in folding:
            merged = _merged(rewriter, node, uses)
        if merged is None:
            rewriter.keep(node)
        else:
            rewriter.replace(node.result, merged)
    return rewriter.finish()


def _merged(rewriter: Rewriter, node: Node, uses: dict[str, int]) -> Value | None:
    a, b = (rewriter.new(value) for value in node.inputs)
    if a.type != b.type:
        return None
    first, second = (
        _depthwise(rewriter, node, old, value, uses)
        for old, value in zip(node.inputs, (a, b), strict=True)
    )
    if first is not None and second is not None and first.inputs[0] == second.inputs[0]:
        return _sum(rewriter, first, second)
    for conv, other in ((first, b), (second, a)):
        if conv is not None and conv.inputs[0] == other:
            return _with_identity(rewriter, conv)
    return None


def _depthwise(
    rewriter: Rewriter, node: Node, old: Value, new: Value, uses: dict[str, int]
) -> Node | None:
    """The convolution that makes a term, if it is depthwise, keeps the size, and is read once."""
    conv = rewriter.maker(new)
    if conv is None or conv.op != "conv2d" or conv.exact != node.exact or uses[old.name] != 1:
        return None
    out, inner, height, width = conv.inputs[1].type.lengths
    is_depthwise = inner == 1 and conv.integer("groups") == out
    keeps_size = height % 2 == width % 2 == 1 and conv.integers("stride") == (1, 1)
    keeps_size = keeps_size and conv.integers("padding") == (height // 2, width // 2)
    return conv if is_depthwise and keeps_size else None


def _sum(rewriter: Rewriter, first: Node, second: Node) -> Value | None:
    """One convolution with the larger kernel; None where neither contains the other."""
    kernels = [conv.inputs[1].type.lengths[2:] for conv in (first, second)]
    larger = (max(kernels[0][0], kernels[1][0]), max(kernels[0][1], kernels[1][1]))
    if larger not in kernels:
        return None
    weights = [_padded(rewriter, conv.inputs[1], larger) for conv in (first, second)]
    weight = rewriter.emit("add", *weights)
    biases = [value for conv in (first, second) for value in conv.inputs[2:]]
    bias = [rewriter.emit("add", *biases)] if len(biases) == 2 else biases
    wide = first if kernels[0] == larger else second
    return rewriter.emit(
        "conv2d", first.inputs[0], weight, *bias, exact=first.exact, **wide.attributes
    )


def _padded(rewriter: Rewriter, weight: Value, kernel: tuple[int, ...]) -> Value:
    """A kernel with zeros around it."""
    around = [
        (size - length) // 2 for size, length in zip(kernel, weight.type.lengths[2:], strict=True)
    ]
    if not any(around):
        return weight
    return rewriter.emit("pad", weight, before=(0, 0, *around), after=(0, 0, *around), value=0.0)


def _with_identity(rewriter: Rewriter, conv: Node) -> Value:
    """The convolution whose result has its input added."""
    x, weight, *bias = conv.inputs
    height, width = weight.type.lengths[2:]
    centre = np.zeros((1, 1, height, width))
    centre[0, 0, height // 2, width // 2] = 1
    identity = rewriter.constant(centre, weight.type.dtype)
    weight = rewriter.emit("add", weight, identity)
    return rewriter.emit("conv2d", x, weight, *bias, exact=conv.exact, **conv.attributes)

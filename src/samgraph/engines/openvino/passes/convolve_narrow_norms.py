"""convolve_narrow_norms: a layer norm over few channels of a convolution is another convolution.

    %0 = conv2d(%x, %w)                        %0 = conv2d(%x, centred %w)
    %1 = transpose(%0, axes=(0,2,3,1))         %1 = conv2d(mul(%0, %0), mean)
    %2 = layer_norm(%1, %s, %t, eps)     =>    %2 = div(%0, sqrt(add(%1, eps)))
    return y=%2                                %3 = add(mul(%2, %s), %t)
                                               %4 = transpose(%3, axes=(0,2,3,1))
                                               return y=%4

OpenVINO computes a norm one pixel at a time, with a vector of its channels; with four of them that
is mostly empty. But where a convolution makes them, the mean over the channels can be taken off its
weights beforehand, and a second convolution, with 1/C in blocks along the diagonal, gives each
number the variance of its pixel. The memory encoder's first two norms, at 1024 pixels: 1.6 ms
instead of 2.7, and no less exact. Up to 16 numbers per position, of one pixel or several (see
`pixels_to_channels`); with 64 it is no gain.
"""

import numpy as np

from samgraph.graph.dims import product
from samgraph.graph.graph import Graph, Node, Value
from samgraph.passes.fold_params import foldable
from samgraph.passes.pointwise_to_linear import CHANNELS_LAST, PLAIN, is_transpose
from samgraph.passes.rewriter import Rewriter, rewrite

_FEW = 16


def convolve_narrow_norms(graph: Graph) -> Graph:
    """Rewrite each layer norm over few channels that a convolution makes."""
    if not graph.has("layer_norm"):
        return graph
    uses, folding = graph.use_counts(), foldable(graph)
    nodes = [node for node in graph if node.result.name not in folding]
    made_by = {node.result.name: made for node in nodes if (made := _find(graph, node, uses))}
    if not made_by:
        return graph

    def centre(rewriter: Rewriter, node: Node) -> Value:
        return _centred(rewriter, node, made_by[node.result.name])

    return rewrite(graph, made_by, centre)


def _find(graph: Graph, norm: Node, uses: dict[str, int]) -> Node | None:
    """The convolution of few channels that only this norm reads, channels-last, cells apart."""

    def maker(value: Value) -> Node | None:
        return graph.producers().get(value.name) if uses[value.name] == 1 else None

    if norm.op != "layer_norm" or norm.result.type.dtype not in ("f32", "f64"):
        return None
    made = maker(norm.inputs[0])
    if made is not None and made.op == "reshape":
        if made.result.type.shape[:-2] != made.inputs[0].type.shape[:-1]:
            return None
        made = maker(made.inputs[0])
    if made is None or not is_transpose(made, CHANNELS_LAST):
        return None
    made = maker(made.inputs[0])
    if made is None or made.op != "conv2d" or made.integer("groups") != 1:
        return None
    return made if made.result.type.length(1) <= _FEW else None


def _centred(rewriter: Rewriter, node: Node, convolution: Node) -> Value:
    exact, dtype = node.exact, node.result.type.dtype
    scale, shift = (rewriter.new(value) for value in node.inputs[1:])
    x, weight, *bias = (rewriter.new(value) for value in convolution.inputs)
    together = weight.type.length(0)
    channels = scale.type.length(0)
    groups = together // channels
    mean = np.kron(np.eye(groups), np.full((channels, channels), 1 / channels))
    centre = rewriter.constant(np.eye(together) - mean, dtype)
    flat = rewriter.emit("reshape", weight, shape=(together, product(weight.type.shape[1:])))
    flat = rewriter.emit("matmul", centre, flat)
    weight = rewriter.emit("reshape", flat, shape=weight.type.shape)
    bias = [rewriter.emit("linear", value, centre) for value in bias]
    x = rewriter.emit("conv2d", x, weight, *bias, exact=exact, **convolution.attributes)
    square = rewriter.emit("mul", x, x, exact=exact)
    average = rewriter.constant(mean[:, :, None, None], dtype)
    variance = rewriter.emit("conv2d", square, average, exact=exact, **PLAIN)
    eps = rewriter.constant(np.array(node.number("eps")), dtype)
    above = rewriter.emit("add", variance, eps, exact=exact)
    y = rewriter.emit("div", x, rewriter.emit("sqrt", above, exact=exact), exact=exact)
    for op, value in (("mul", scale), ("add", shift)):
        wide = rewriter.emit("concat", *[value] * groups, axis=0)
        wide = rewriter.emit("reshape", wide, shape=(together, 1, 1))
        y = rewriter.emit(op, y, wide, exact=exact)
    last = rewriter.emit("transpose", y, exact=exact, axes=CHANNELS_LAST)
    return rewriter.emit("reshape", last, exact=exact, shape=node.result.type.shape)

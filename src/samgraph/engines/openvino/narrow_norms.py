"""A detour for layer norms over few channels, which OpenVINO computes one pixel at a time.

Its kernel fills a vector with the channels of one pixel; with four of them it is mostly empty. But
where a convolution makes them, its weights can have their mean taken away beforehand, and another
convolution gives each number the variance of its pixel:

    x = conv2d(..., (1 - mean of C) @ weight)     mean of C: 1/C in blocks along the diagonal
    y = x / sqrt(conv2d(x^2, mean of C) + eps) * scale + shift

The memory encoder's first two, at 1024 pixels: 1.6 ms instead of 2.7, and no less exact. Up to 16
numbers a place, of one pixel or several (`passes/pixels_to_channels.py`); with 64 it is no gain. In
float32 only: the variance of numbers rounded to bf16 would be a poor one.
"""

import numpy as np

from samgraph.graph.dims import product
from samgraph.graph.graph import Graph, Node, Value
from samgraph.passes.pointwise_to_linear import CHANNELS_LAST, PLAIN
from samgraph.passes.rewriter import Rewriter, rewrite
from samgraph.passes.simplify_movement import simplify_movement

_FEW = 16


def centre_norms(graph: Graph) -> Graph:
    """The same graph, in which layer norms over few channels are convolutions."""
    made_by = {node.result.name: made for node in graph if (made := _find(graph, node))}
    if not made_by:
        return graph

    def centre(rewriter: Rewriter, node: Node) -> Value:
        return _centred(rewriter, node, made_by[node.result.name])

    return simplify_movement(rewrite(graph, made_by, centre))


def _find(graph: Graph, node: Node) -> Node | None:
    """The convolution of few channels that only this norm reads, moved last, cells apart."""
    if node.op != "layer_norm" or node.result.type.dtype != "f32":
        return None
    made = _made_for(graph, node.inputs[0])
    if made is not None and made.op == "reshape":
        if made.result.type.shape[:-2] != made.inputs[0].type.shape[:-1]:
            return None
        made = _made_for(graph, made.inputs[0])
    if made is None or made.op != "transpose" or made.integers("axes") != CHANNELS_LAST:
        return None
    made = _made_for(graph, made.inputs[0])
    if made is None or made.op != "conv2d" or made.integer("groups") != 1:
        return None
    return made if made.result.type.length(1) <= _FEW else None


def _made_for(graph: Graph, value: Value) -> Node | None:
    """The node that makes a value, if it is read once."""
    return graph.producers().get(value.name) if graph.use_counts()[value.name] == 1 else None


def _centred(rewriter: Rewriter, node: Node, convolution: Node) -> Value:
    exact = node.exact
    scale, shift = (rewriter.new(value) for value in node.inputs[1:])
    x, weight, *bias = (rewriter.new(value) for value in convolution.inputs)
    together = weight.type.length(0)
    channels = scale.type.length(0)
    groups = together // channels
    mean = np.kron(np.eye(groups), np.full((channels, channels), 1 / channels))
    centre = rewriter.constant(np.eye(together) - mean, "f32")
    flat = rewriter.emit("reshape", weight, shape=(together, product(weight.type.shape[1:])))
    flat = rewriter.emit("matmul", centre, flat)
    weight = rewriter.emit("reshape", flat, shape=weight.type.shape)
    bias = [rewriter.emit("linear", value, centre) for value in bias]
    x = rewriter.emit("conv2d", x, weight, *bias, exact=exact, **convolution.attributes)
    square = rewriter.emit("mul", x, x, exact=exact)
    average = rewriter.constant(mean[:, :, None, None], "f32")
    variance = rewriter.emit("conv2d", square, average, exact=exact, **PLAIN)
    eps = rewriter.constant(np.array(node.number("eps")), "f32")
    above = rewriter.emit("add", variance, eps, exact=exact)
    y = rewriter.emit("div", x, rewriter.emit("sqrt", above, exact=exact), exact=exact)
    for op, value in (("mul", scale), ("add", shift)):
        wide = rewriter.emit("concat", *[value] * groups, axis=0)
        wide = rewriter.emit("reshape", wide, shape=(together, 1, 1))
        y = rewriter.emit(op, y, wide, exact=exact)
    last = rewriter.emit("transpose", y, exact=exact, axes=CHANNELS_LAST)
    return rewriter.emit("reshape", last, exact=exact, shape=node.result.type.shape)

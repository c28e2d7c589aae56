"""absorb_norm_weights: linear layers absorb the scale and shift of the layer norm before them.

    %0 = layer_norm(%x, %s, %t)         %0 = layer_norm(%x, ones, zeros)
    %1 = linear(%0, %w, %b)       =>    %1 = mul(%w, %s)
    return y=%1                         %2 = add(%b, linear(%t, %w))
                                        %3 = linear(%0, %1, %2)
                                        return y=%3

OpenVINO would scale and shift in a step of its own: half a percent of the encoders' time. Only
where linear layers are all that reads the norm, reshaped and transposed or not; but not padded, for
padding has no shift.
"""

import numpy as np

from samgraph.graph.graph import Graph, Node, Value
from samgraph.passes.fold_params import foldable
from samgraph.passes.rewriter import Rewriter, rewrite


def absorb_norm_weights(graph: Graph) -> Graph:
    """Rewrite each norm that only linear layers read, and those layers."""
    norms = _norms(graph)
    if not norms:
        return graph
    plain = {norm.result.name for norm in norms.values()}

    def without_weights(rewriter: Rewriter, node: Node) -> Value:
        x, *weights = (rewriter.new(value) for value in node.inputs)
        if node.result.name in plain:
            type = weights[0].type
            weights = [
                rewriter.constant(f(type.length(0)), type.dtype) for f in (np.ones, np.zeros)
            ]
        else:
            scale, shift = map(rewriter.new, norms[node.result.name].inputs[1:])
            weight, *bias = weights
            moved = rewriter.emit("linear", shift, weight)
            moved = rewriter.emit("add", *bias, moved) if bias else moved
            weights = [rewriter.emit("mul", weight, scale), moved]
        return rewriter.emit(node.op, x, *weights, exact=node.exact, **node.attributes)

    return rewrite(graph, plain | norms.keys(), without_weights)


def _norms(graph: Graph) -> dict[str, Node]:
    """The norm of every linear layer that can absorb its weights, by the layer's result."""
    source: dict[str, Node] = {}  # the norm that a value is, or is moved from
    layers: dict[str, Node] = {}
    folding = foldable(graph)
    others: set[str] = set()  # norms that something else reads
    for node in graph:
        for position, value in enumerate(node.inputs):
            norm = source.get(value.name)
            if norm is None:
                continue
            if _keeps_channels(node):
                source[node.result.name] = norm
            elif node.op == "linear" and position == 0:
                layers[node.result.name] = norm
            else:
                others.add(norm.result.name)
        if node.result.name not in folding and _has_weights(graph, node):
            source[node.result.name] = node
    others |= {source[value.name].result.name for _, value in graph.outputs if value.name in source}
    return {name: norm for name, norm in layers.items() if norm.result.name not in others}


def _has_weights(graph: Graph, node: Node) -> bool:
    """A norm with weights of its own; half precision has not the digits to join them."""
    if node.op != "layer_norm" or node.result.type.dtype not in ("f32", "f64"):
        return False
    made = [graph.producers().get(value.name) for value in node.inputs[1:]]
    return not all(maker is not None and maker.op == "constant" for maker in made)


def _keeps_channels(node: Node) -> bool:
    """Whether a node only moves what has its channels last, and leaves them there."""
    if node.op == "transpose":
        axes = node.integers("axes")
        return axes[-1] in (-1, len(axes) - 1)
    return node.op == "reshape" and node.inputs[0].type.shape[-1:] == node.result.type.shape[-1:]

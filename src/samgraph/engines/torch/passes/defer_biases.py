"""defer_biases: biases added to a residual stream are deferred until the stream is read.

    %0 = fused_linear(%a, %w1, %b1, %x)             %0 = fused_linear(%a, %w1, 0, %x)
    %1 = fused_linear(%0, %w2, %b2, eps=...)        %1 = offset_norm(%0, %b1), then linear
    %2 = fused_linear(%1, %w3, %b3, %0)      =>     %2 = fused_linear(%1, %w3, 0, %0)
    return y=linear(%2, %w4, %b4)                   return y=linear(%2, %w4, w4 @ (b1 + b3) + b4)

The stream is kept without the sum of its biases, which is a constant: norms add it first, and
linear layers have it in their bias. A product then only accumulates into the stream, which cuBLAS
does at no cost. Done for wide streams, where tiled products are the best kernels.
"""

import numpy as np

from samgraph.engines.torch.passes.layers import Search, width
from samgraph.graph.graph import Graph, Node, Value
from samgraph.passes.rewriter import Rewriter

WIDEST = 128  # of streams whose norms are better fused into products
_MOVES = ("reshape",)


def defer_biases(graph: Graph) -> Graph:
    """Rewrite every stream from its first layer on."""
    if not graph.has("fused_linear", "fused_mlp"):
        return graph
    search, rewriter = Search(graph), Rewriter(graph)
    state = _State(search, rewriter)
    for node in graph:
        state.visit(node)
    outputs = tuple((name, state.whole(value)) for name, value in graph.outputs)
    return rewriter.finish(outputs)


class _State:
    """Streams by old value: the deferred bias [C] of each, in the new graph."""

    def __init__(self, search: Search, rewriter: Rewriter) -> None:
        self._search, self._rewriter = search, rewriter
        self._short: dict[str, Value] = {}
        self._whole: dict[str, Value] = {}
        self._norms: dict[tuple[str, float], Value] = {}

    def visit(self, node: Node) -> None:
        """Copy a node, or emit its rewrite."""
        if node.op == "fused_mlp" and _is_wide(node) and self._may_wait(node.result):
            self._mlp(node)
        elif node.op == "fused_linear" and _is_wide(node) and self._is_plain(node):
            self._linear(node)
        elif node.op == "layer_norm" and node.inputs[0].name in self._short and not node.exact:
            x, scale, shift = (self._rewriter.new(value) for value in node.inputs)
            short = self._short[node.inputs[0].name]
            eps = node.attributes["eps"]
            made = self._rewriter.emit("offset_norm", x, short, scale, shift, eps=eps)
            self._rewriter.replace(node.result, made)
        elif node.op in _MOVES and node.inputs[0].name in self._short and _keeps_channels(node):
            self._rewriter.keep(node)
            self._short[node.result.name] = self._short[node.inputs[0].name]
        elif any(value.name in self._short for value in node.inputs):
            inputs = [self.whole(value) for value in node.inputs]
            made = self._rewriter.emit(node.op, *inputs, exact=node.exact, **node.attributes)
            self._rewriter.replace(node.result, made)
        else:
            self._rewriter.keep(node)

    def whole(self, value: Value) -> Value:
        """The new value with its deferred bias added."""
        new, short = self._rewriter.new(value), self._short.get(value.name)
        if short is None:
            return new
        if value.name not in self._whole:
            self._whole[value.name] = self._rewriter.emit("add", new, short)
        return self._whole[value.name]

    def _may_wait(self, value: Value) -> bool:
        """Whether every reader of a stream can take it without its bias."""
        for reader in self._search.readers.get(value.name, []):
            if reader is None or reader.exact:
                return False
            positions = [i for i, read in enumerate(reader.inputs) if read == value]
            if reader.op == "reshape" and _keeps_channels(reader):
                if not self._may_wait(reader.result):
                    return False
            elif reader.op == "layer_norm" or (reader.op == "fused_mlp" and _is_wide(reader)):
                if positions != [0]:
                    return False
            elif reader.op != "fused_linear" or not _is_wide(reader) or not self._is_plain(reader):
                return False
        return True

    def _is_plain(self, node: Node) -> bool:
        fixed = all(value.name in self._search.weights for value in node.inputs[1:3])
        return fixed and not node.exact and not node.attributes.get("rotated")

    def _mlp(self, node: Node) -> None:
        x, inner, inner_bias, outer, outer_bias = node.inputs
        new = [self._rewriter.new(value) for value in (inner, inner_bias, outer)]
        eps, activation = node.attributes["eps"], node.attributes["activation"]
        normal = self._norm(x, float(str(eps)))
        hidden = self._rewriter.emit("fused_linear", normal, *new[:2], activation=activation)
        self._add(node, hidden, new[2], outer_bias, x)

    def _linear(self, node: Node) -> None:
        x, weight, bias = node.inputs[:3]
        given = dict(node.attributes)
        eps = float(str(given.pop("eps", 0.0)))
        weight_new, bias_new = self._rewriter.new(weight), self._rewriter.new(bias)
        if eps:
            read = self._norm(x, eps)
        else:
            read = self._rewriter.new(x)
            if x.name in self._short:
                short = self._short[x.name]
                bias_new = self._rewriter.emit("linear", short, weight_new, bias_new)
        adds = len(node.inputs) == 4 and not given and not eps and x.name not in self._short
        if adds and self._may_wait(node.result):
            self._add(node, read, weight_new, bias, node.inputs[3])
            return
        residuals = [self.whole(value) for value in node.inputs[3:]]
        made = self._rewriter.emit(
            "fused_linear", read, weight_new, bias_new, *residuals, exact=False, **given
        )
        self._rewriter.replace(node.result, made)

    def _norm(self, x: Value, eps: float) -> Value:
        if (x.name, eps) not in self._norms:
            short = self._short.get(x.name)
            if short is None:
                short = self._rewriter.constant(np.zeros(width(x), np.float32), "f32")
            new = self._rewriter.new(x)
            self._norms[x.name, eps] = self._rewriter.emit("offset_norm", new, short, eps=eps)
        return self._norms[x.name, eps]

    def _add(self, node: Node, x: Value, weight: Value, bias: Value, residual: Value) -> None:
        """A product added to a stream, its bias deferred."""
        before, bias_new = self._short.get(residual.name), self._rewriter.new(bias)
        short = bias_new if before is None else self._rewriter.emit("add", before, bias_new)
        stream = self._rewriter.new(residual)
        made = self._rewriter.emit("fused_linear", x, weight, bias_new, stream, biased=False)
        self._rewriter.replace(node.result, made)
        self._short[node.result.name] = short


def _is_wide(node: Node) -> bool:
    """Whether the rows that are read or added to are wide, and many."""
    many = len(node.result.type.shape) >= 3
    stream = node.inputs[3] if len(node.inputs) == 4 else node.inputs[0]
    wide = isinstance(stream.type.shape[-1], int) and stream.type.shape[-1] > WIDEST
    return many and wide and node.result.type.dtype == "f32"


def _keeps_channels(node: Node) -> bool:
    return node.result.type.shape[-1] == node.inputs[0].type.shape[-1]

"""project_sums: a linear layer of a sum is applied to each term, and joined with the term's own.

    %0 = linear(%h, %w1, %b1)           %0 = matmul(%w2, %w1)
    %1 = add(%x, %0)                    %1 = linear(%b1, %w2, %b2)
    %2 = linear(%1, %w2, %b2)    =>     %2 = linear(%x, %w2)
    return y=%2                         %3 = linear(%h, %0, %1)
                                        %4 = add(%2, %3)
                                        return y=%4

A residual block whose only reader is a narrower projection ends in this. The same with a 1 x 1
convolution as the outer layer, of a term that is transposed from channels-last. Only where nothing
else reads the term or the sum, and where the outer layer is narrower: then it is less work.
"""

from typing import NamedTuple

from samgraph.graph.graph import Graph, Node, Value
from samgraph.passes.pointwise_to_linear import CHANNELS_SECOND, is_pointwise
from samgraph.passes.rewriter import Rewriter, rewrite_matches


class _Sum(NamedTuple):
    """The terms that the outer layer reads: a linear layer's result, and the rest."""

    inner: Node
    rest: Value


def project_sums(graph: Graph) -> Graph:
    """Rewrite each narrowing layer of a sum."""
    if not graph.has("add"):
        return graph
    uses = graph.use_counts()
    return rewrite_matches(graph, lambda node: _find(graph, node, uses), _project)


def _is_layer(node: Node) -> bool:
    return is_pointwise(node) or _is_plain(node)


def _is_plain(node: Node | None) -> bool:
    if node is None or node.op != "linear":
        return False
    return node.text("activation", "none") == "none"


def _find(graph: Graph, outer: Node, uses: dict[str, int]) -> _Sum | None:
    if not _is_layer(outer):
        return None
    total = _made_for(graph, outer.inputs[0], uses)
    if total is None or total.op != "add" or total.exact != outer.exact:
        return None
    for term, rest in (total.inputs, total.inputs[::-1]):
        inner = _made_for(graph, term, uses)
        if inner is not None and outer.op == "conv2d":
            moved = inner.op == "transpose" and inner.integers("axes") == CHANNELS_SECOND
            inner = _made_for(graph, inner.inputs[0], uses) if moved else None
        if inner is None or not _is_plain(inner) or inner.exact != outer.exact:
            continue
        if term.type == rest.type and _narrows(outer):
            return _Sum(inner, rest)
    return None


def _made_for(graph: Graph, value: Value, uses: dict[str, int]) -> Node | None:
    """The node that produces a value, if it is read once."""
    return graph.producers().get(value.name) if uses[value.name] == 1 else None


def _narrows(outer: Node) -> bool:
    weight = outer.inputs[1].type
    return weight.length(0) < weight.length(1)


def _project(rewriter: Rewriter, outer: Node, total: _Sum) -> Value:
    exact = outer.exact
    weight, *bias = (rewriter.new(value) for value in outer.inputs[1:])
    x, inner, *inner_bias = (rewriter.new(value) for value in total.inner.inputs)
    rest = rewriter.emit(
        outer.op, rewriter.new(total.rest), weight, exact=exact, **outer.attributes
    )
    if outer.op == "conv2d":
        weight = rewriter.emit("reshape", weight, shape=weight.type.shape[:2])
    if inner_bias:
        bias = [rewriter.emit("linear", inner_bias[0], weight, *bias)]
    joined = rewriter.emit("matmul", weight, inner)
    term = rewriter.emit("linear", x, joined, *bias, exact=exact)
    if outer.op == "conv2d":
        term = rewriter.emit("transpose", term, exact=exact, axes=CHANNELS_SECOND)
    return rewriter.emit("add", rest, term, exact=exact)

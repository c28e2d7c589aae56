"""absorb_key_projection: few queries absorb the projections of many keys and values.

    %0 = linear(%x, %wk, %bk)          %0 = mul(%q, scale), split into heads   [N,h,T,D]
    %1 = linear(%y, %wv, %bv)          %1 = matmul(%0, %wk by head)            [N,h*T,C]
    %2 = attention(%q, %0, %1)   =>    %2 = matmul(%x, %1 transposed)          [N,S,h*T]
    return y=%2                        %3 = softmax(%2 transposed)             [N,h*T,S]
                                       %4 = matmul(%3, %y)                     [N,h*T,C]
                                       %5 = matmul(%4, %wv by head)            [N,T,h*D]
                                       %6 = add(%5, %bv)
                                       return y=%6

Exact: a head's score is q'(wk x) = (wk'q)'x, so the query can be projected in place of all keys.
The bias of the keys adds one number to all scores of a query, which softmax ignores. The
weights of an average sum to one: avg(wv y + bv) = wv avg(y) + bv.

Only without a mask, where nothing else reads the projections, and where it is fewer multiply-adds,
each symbol counted as 1. Used for token-to-image cross-attention: 8 tokens of a click, 4096 cells.
"""

from typing import NamedTuple

from samgraph.graph.graph import Graph, Node, Value
from samgraph.passes.heads import (
    SPLIT_HEADS,
    SWAP,
    heads_in_rows,
    heads_of,
    least,
    plain_linear,
    scaled_heads,
    split_weight,
)
from samgraph.passes.rewriter import Rewriter, rewrite_matches


class _Projections(NamedTuple):
    """The linear layers that make the keys and the values."""

    keys: Node
    values: Node


def absorb_key_projection(graph: Graph) -> Graph:
    """Rewrite each attention of few queries to many projected keys and values."""
    if not graph.has("attention"):
        return graph
    uses = graph.use_counts()
    return rewrite_matches(graph, lambda node: _find(graph, node, uses), _attend)


def _find(graph: Graph, node: Node, uses: dict[str, int]) -> _Projections | None:
    if node.op != "attention" or len(node.inputs) != 3 or node.result.type.rank != 3:
        return None
    keys, values = (plain_linear(graph, value, uses) for value in node.inputs[1:])
    if keys is None or values is None or not keys.exact == values.exact == node.exact:
        return None
    found = _Projections(keys, values)
    return found if _pays(node, found) else None


def _pays(node: Node, found: _Projections) -> bool:
    (_, T, inner), (_, S, outer) = node.inputs[0].type.shape, node.inputs[2].type.shape
    wide = found.keys.inputs[0].type.shape[-1] + found.values.inputs[0].type.shape[-1]
    once = inner * found.keys.inputs[0].type.shape[-1]
    once = once + outer * found.values.inputs[0].type.shape[-1]
    absorbed = heads_of(node) * T * S * wide + T * once
    return least(absorbed) < least(S * once + T * S * (inner + outer))


def _attend(rewriter: Rewriter, node: Node, found: _Projections) -> Value:
    exact, q = node.exact, rewriter.new(node.inputs[0])
    x, key_weight = (rewriter.new(value) for value in found.keys.inputs[:2])
    y, value_weight, *bias = (rewriter.new(value) for value in found.values.inputs)
    queries = scaled_heads(rewriter, q, node)
    moved = rewriter.emit("matmul", queries, split_weight(rewriter, key_weight, node), exact=exact)
    moved = heads_in_rows(rewriter, moved, node)
    moved = rewriter.emit("transpose", moved, exact=exact, axes=SWAP)
    scores = rewriter.emit("matmul", x, moved, exact=exact)
    scores = rewriter.emit("transpose", scores, exact=exact, axes=SWAP)
    weights = rewriter.emit("softmax", scores, exact=exact, axis=-1)
    average = rewriter.emit("matmul", weights, y, exact=exact)
    shape = (*queries.type.shape[:3], y.type.shape[-1])
    average = rewriter.emit("reshape", average, exact=exact, shape=shape)
    by_head = split_weight(rewriter, value_weight, node)
    by_head = rewriter.emit("transpose", by_head, axes=(0, 1, 3, 2))
    result = rewriter.emit("matmul", average, by_head, exact=exact)
    result = rewriter.emit("transpose", result, exact=exact, axes=SPLIT_HEADS)
    result = rewriter.emit("reshape", result, exact=exact, shape=node.result.type.shape)
    return rewriter.emit("add", result, *bias, exact=exact) if bias else result

"""absorb_query_projection: few keys absorb the projection of many queries, values the output's.

    %0 = linear(%x, %wq, %bq)             %0 = mul(%k, scale), split into heads   [N,h,S,D]
    %1 = attention(%0, %k, %v, %mask)     %1 = matmul(%0, %wq by head)            [N,h*S,C]
    %2 = linear(%1, %wo, %bo)             %2 = matmul(%x, %1 transposed)          [N,T,h*S]
    return y=%2                     =>    %3 = matmul(%0, %bq by head)            [N,1,h,S]
                                          %4 = add(%2, %3 + %mask)                [N,T,h,S]
                                          %5 = softmax(%4)
                                          %6 = matmul(%v, %wo by head) + %bo / h  [N,h*S,C]
                                          %7 = matmul(%5, %6)                     [N,T,C]
                                          return y=%7

Exact, the mirror image of `absorb_key_projection`: (wq x + bq)'k = x'(wq'k) + bq'k. The sum over
heads of wo avg(v) is an average of wo v; the weights of a head sum to one, so that each head can
carry its share of the bias. Queries that are not projected, or shared by the whole batch
(`expand`), stay as they are: then the keys of each head get separate columns, zero elsewhere.

Only where nothing else reads the values between, for masks that all queries share, and where it is
fewer multiply-adds, each symbol counted as 1. Used for image-to-token cross-attention. Keys that
grow by more than a few with a symbol, as a memory does with every frame, are not few.
"""

from typing import NamedTuple

import numpy as np

from samgraph.graph.dims import Dim
from samgraph.graph.graph import Graph, Node, Value
from samgraph.passes.heads import (
    SWAP,
    heads_in_rows,
    heads_of,
    least,
    plain_linear,
    scaled_heads,
    split_heads,
    split_weight,
)
from samgraph.passes.rewriter import Rewriter, rewrite_matches
from samgraph.passes.sink_expand import repeated_row

_FEW = 16


class _Parts(NamedTuple):
    """An attention, the linear layer that makes its queries, if one does, and its queries."""

    attention: Node
    projection: Node | None
    queries: Value  # [N or 1, T, C], before the projection


def absorb_query_projection(graph: Graph) -> Graph:
    """Rewrite each attention of many queries to few keys that an output projection reads."""
    if not graph.has("attention"):
        return graph
    uses = graph.use_counts()
    return rewrite_matches(graph, lambda node: _find(graph, node, uses), _attend)


def _find(graph: Graph, output: Node, uses: dict[str, int]) -> _Parts | None:
    """The attention before an output projection, if rewriting both pays."""
    if output.op != "linear":
        return None
    node = graph.producers().get(output.inputs[0].name)
    if node is None or node.op != "attention" or uses[node.result.name] != 1:
        return None
    if output.attributes.get("activation", "none") != "none" or output.exact != node.exact:
        return None
    if node.result.type.rank != 3 or not all(_shared_by_queries(mask) for mask in node.inputs[3:]):
        return None
    queries = node.inputs[0]
    projection = plain_linear(graph, queries, uses)
    if projection is not None and projection.exact != node.exact:
        projection = None
    if projection is not None:
        queries = projection.inputs[0]
    else:
        made = graph.producers().get(queries.name)
        row = None if made is None else repeated_row(made)
        queries = queries if row is None else row
    parts = _Parts(node, projection, queries)
    return parts if _pays(parts, output) else None


def _shared_by_queries(mask: Value) -> bool:
    """Whether a mask is [N or 1, heads or 1, 1, S or 1]."""
    return mask.type.rank == 4 and mask.type.shape[2] == 1


def _pays(parts: _Parts, output: Node) -> bool:
    node = parts.attention
    (_, T, inner), (_, S, outer) = node.inputs[0].type.shape, node.inputs[2].type.shape
    end, wide = output.result.type.shape[-1], parts.queries.type.shape[-1]
    projecting: Dim = 0 if parts.projection is None else wide * inner
    absorbed = heads_of(node) * T * S * (wide + end) + S * (projecting + outer * end)
    are_few = least(S, 2) - least(S) <= _FEW
    as_it_is = T * (projecting + outer * end) + T * S * (inner + outer)
    return are_few and least(absorbed) < least(as_it_is)


def _attend(rewriter: Rewriter, output: Node, parts: _Parts) -> Value:
    node, exact = parts.attention, output.exact
    _, k, v, *masks = (rewriter.new(value) for value in node.inputs)
    keys = scaled_heads(rewriter, k, node)
    moved, added = _keys(rewriter, parts, keys, masks)
    moved = rewriter.emit("transpose", moved, exact=exact, axes=SWAP)
    scores = rewriter.emit("matmul", rewriter.new(parts.queries), moved, exact=exact)
    (N, T, rows), (_, heads, S, _) = scores.type.shape, keys.type.shape
    scores = rewriter.emit("reshape", scores, exact=exact, shape=(N, T, heads, S))
    for value in added:
        scores = rewriter.emit("add", scores, value, exact=exact)
    weights = rewriter.emit("softmax", scores, exact=exact, axis=-1)
    weights = rewriter.emit("reshape", weights, exact=exact, shape=(N, T, rows))
    return rewriter.emit("matmul", weights, _values(rewriter, output, node, v), exact=exact)


def _keys(
    rewriter: Rewriter, parts: _Parts, keys: Value, masks: list[Value]
) -> tuple[Value, list[Value]]:
    """The keys that queries are multiplied with, [N, h*S, C], and what is added to the scores."""
    node, projection = parts.attention, parts.projection
    exact = node.exact
    added = [_heads_before_keys(rewriter, mask, exact) for mask in masks]
    if projection is None:
        return _block_diagonal(rewriter, keys, node), added
    _, weight, *bias = (rewriter.new(value) for value in projection.inputs)
    moved = rewriter.emit("matmul", keys, split_weight(rewriter, weight, node), exact=exact)
    moved = heads_in_rows(rewriter, moved, node)
    if bias:
        N, heads, S, D = keys.type.shape
        column = rewriter.emit("reshape", bias[0], shape=(1, heads, D, 1))
        shift = rewriter.emit("matmul", keys, column, exact=exact)
        shift = rewriter.emit("reshape", shift, exact=exact, shape=(N, 1, heads, S))
        added = [rewriter.emit("add", shift, *added, exact=exact) if added else shift]
    return moved, added


def _heads_before_keys(rewriter: Rewriter, mask: Value, exact: bool) -> Value:
    """[N, h, 1, S] -> [N, 1, h, S]."""
    N, heads, _, S = mask.type.shape
    if heads == 1:
        return mask
    return rewriter.emit("reshape", mask, exact=exact, shape=(N, 1, heads, S))


def _block_diagonal(rewriter: Rewriter, keys: Value, node: Node) -> Value:
    """Block-diagonal keys, each head in separate columns: [N, h, S, D] -> [N, h*S, h*D]."""
    N, heads, S, D = keys.type.shape
    count = heads_of(node)
    own = np.eye(count).reshape(1, count, 1, count, 1)
    spread = rewriter.emit("reshape", keys, exact=node.exact, shape=(N, heads, S, 1, D))
    blocks = rewriter.constant(own, keys.type.dtype)
    columns = rewriter.emit("mul", spread, blocks, exact=node.exact)
    shape = (N, heads * S, heads * D)
    return rewriter.emit("reshape", columns, exact=node.exact, shape=shape)


def _values(rewriter: Rewriter, output: Node, node: Node, v: Value) -> Value:
    """The values with the output projection of their head applied: [N, h*S, C]."""
    exact = node.exact
    weight, *bias = (rewriter.new(value) for value in output.inputs[1:])
    (end, outer), heads = weight.type.shape, heads_of(node)
    by_head = rewriter.emit("transpose", weight, axes=(1, 0))
    shape = (1, heads, outer // heads, end)
    by_head = rewriter.emit("reshape", by_head, shape=shape)
    values = rewriter.emit("matmul", split_heads(rewriter, v, node), by_head, exact=exact)
    if bias:
        share = rewriter.constant(np.asarray(1.0 / heads), weight.type.dtype)
        share = rewriter.emit("mul", bias[0], share)
        values = rewriter.emit("add", values, share, exact=exact)
    return heads_in_rows(rewriter, values, node)

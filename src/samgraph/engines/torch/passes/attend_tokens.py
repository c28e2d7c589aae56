"""attend_tokens: image-to-token cross-attention, residual and layer norm become one op.

    %0 = linear(%x, %wk, %bk), scaled, by head, times the queries' weights       [N, h*T, C]
    %1 = softmax(matmul(%queries, transpose(%0)) + scores of the bias + mask)    over T
    %2 = linear(%v, %wv, %bv), by head, times the output's weights               [N, h*T, C]
    %3 = layer_norm(add(%image, matmul(%1, %2)))

        =>

    %0 = linear(%x, products of weights)                    keys [N, T, h*C] and scores [N, T, h]
    %1 = linear(%v, products of weights)                    values [N, T, h*C]
    %2 = image_to_tokens(%image, %queries, keys, scores, %1, ...)

Exact, as in `attend_image`.
"""

from dataclasses import dataclass

from samgraph.engines.torch.passes.attend_image import Asked, asked_of, head_products, heads_of
from samgraph.engines.torch.passes.layers import Search, width
from samgraph.graph.graph import Graph, Node, Value
from samgraph.passes.rewriter import Rewriter

_SWAPPED = (0, 2, 1)


@dataclass(frozen=True, slots=True)
class _Match:
    image: Value
    queries: Value
    keys: Asked
    column: Value  # [1, h, D, 1], the bias of the queries
    mask: Value | None  # [N, 1, 1, T]
    values: Asked
    share: Value  # [C], the output's bias of each head
    scale: Value
    shift: Value
    eps: float


def attend_tokens(graph: Graph) -> Graph:
    """Rewrite every norm that reads such an attention."""
    if not graph.has("softmax"):
        return graph
    search, rewriter = Search(graph), Rewriter(graph)
    for node in graph:
        match = _match(search, node) if node.op == "layer_norm" else None
        if match is None:
            rewriter.keep(node)
        else:
            rewriter.replace(node.result, _emit(rewriter, match))
    return rewriter.finish()


def _match(search: Search, node: Node) -> _Match | None:
    added = search.only(node.inputs[0], "add")
    product = search.only(added.inputs[1], "matmul") if added else None
    joined = search.only(product.inputs[0], "reshape") if product else None
    soft = search.only(joined.inputs[0], "softmax") if joined else None
    summed = search.only(soft.inputs[0], "add") if soft else None
    split = search.only(summed.inputs[0], "reshape") if summed else None
    scores = search.only(split.inputs[0], "matmul") if split else None
    across = search.only(scores.inputs[1], "transpose") if scores else None
    if added is None or product is None or soft is None or summed is None:
        return None
    if scores is None or across is None or across.attributes["axes"] != _SWAPPED:
        return None
    keys, values = asked_of(search, across.inputs[0]), _values(search, product.inputs[1])
    extra = _extra(search, summed.inputs[1], keys) if keys else None
    image = added.inputs[0]
    if keys is None or values is None or extra is None or image.type != added.result.type:
        return None
    fits = soft.attributes["axis"] in (-1, 3) and keys.heads == values[0].heads
    if not fits or scores.inputs[0].type != image.type or width(keys.weights) != width(image):
        return None
    column, mask = extra
    scale, shift = node.inputs[1:]
    eps = float(str(node.attributes["eps"]))
    found = (column, mask, values[0], values[1], scale, shift, eps)
    return _Match(image, scores.inputs[0], keys, *found)


def _values(search: Search, value: Value) -> tuple[Asked, Value] | None:
    """The projected values, and each head's share of the bias."""
    flat = search.maker(value, "reshape")
    added = search.maker(flat.inputs[0], "add") if flat else None
    product = search.maker(added.inputs[0], "matmul") if added else None
    if flat is None or added is None or product is None:
        return None
    share, weights = added.inputs[1], product.inputs[1]
    heads = heads_of(search, product.inputs[0])
    known = share.name in search.weights and weights.name in search.weights
    if heads is None or not known or share.type.rank != 1:
        return None
    layer, scale, count = heads
    return Asked(layer, scale, weights, count), share


def _extra(search: Search, value: Value, keys: Asked) -> tuple[Value, Value | None] | None:
    """The bias column in the scores, and the mask added to them."""
    mask: Value | None = None
    added = search.maker(value, "add")
    if added is not None:
        value, mask = added.inputs
    flat = search.maker(value, "reshape")
    product = search.maker(flat.inputs[0], "matmul") if flat else None
    heads = heads_of(search, product.inputs[0]) if product else None
    if product is None or heads is None or heads[0] != keys.layer:
        return None
    column = product.inputs[1]
    return (column, mask) if column.name in search.weights and width(column) == 1 else None


def _emit(rewriter: Rewriter, match: _Match) -> Value:
    keys, heads = match.keys, match.keys.heads
    x = rewriter.new(keys.layer.x)
    N, T, _ = x.type.shape
    column = Asked(keys.layer, keys.scale, match.column, heads)
    offered = rewriter.emit("linear", x, *head_products(rewriter, keys))
    scores = rewriter.emit("linear", x, *head_products(rewriter, column))
    if match.mask is not None:
        mask = rewriter.emit("reshape", rewriter.new(match.mask), shape=(N, T, 1))
        scores = rewriter.emit("add", scores, mask)
    weight, bias = head_products(rewriter, match.values)
    shares = rewriter.emit("concat", *[rewriter.new(match.share)] * heads, axis=0)
    bias = rewriter.emit("add", bias, shares)
    given = rewriter.emit("linear", rewriter.new(match.values.layer.x), weight, bias)
    read = [rewriter.new(value) for value in (match.image, match.queries)]
    weights = [rewriter.new(value) for value in (match.scale, match.shift)]
    return rewriter.emit(
        "image_to_tokens", *read, offered, scores, given, *weights, heads=heads, eps=match.eps
    )

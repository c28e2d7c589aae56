"""attend_image: token-to-image cross-attention of few tokens becomes one attention.

    %0 = linear(%x, %wq, %bq), scaled, split into heads     [N, h, T, D]
    %1 = matmul(%0, keys' weights of each head)             [N, h*T, C]
    %2 = softmax(transpose(matmul(%keys, transpose(%1))))
    %3 = matmul(%2, %image)                                 [N, h*T, C]
    %4 = matmul(%3, values' weights of each head), heads together, bias
    %5 = linear(%4, %wo, %bo)

        =>

    %0 = linear(%x, wk' @ wq of each head)                  [N, T, h*C]
    %1 = attention(%0, %keys, %image)                       [N, T*h, C]
    %2 = linear(%1, wo @ wv of each head)                   [N, T, C]

Exact: products of weights are multiplied out, and the queries of all heads are one batch of tokens.
"""

from dataclasses import dataclass

from samgraph.engines.torch.passes.layers import Layer, Search, width
from samgraph.graph.graph import Graph, Node, Value
from samgraph.passes.rewriter import Rewriter

SPLIT_HEADS = (0, 2, 1, 3)
_SWAPPED = (0, 2, 1)


@dataclass(frozen=True, slots=True)
class Asked:
    """Projected tokens split into heads, times weights of each head: [N, h*T, C]."""

    layer: Layer
    scale: float
    weights: Value  # [1, h, D, C]
    heads: int


@dataclass(frozen=True, slots=True)
class _Match:
    asked: Asked
    keys: Value
    image: Value
    values: Value  # [1, h, C, D]
    bias: Value  # [h*D]


def attend_image(graph: Graph) -> Graph:
    """Rewrite every linear layer that reads such an attention."""
    if not graph.has("softmax"):
        return graph
    search, rewriter = Search(graph), Rewriter(graph)
    for node in graph:
        match = _match(search, node) if node.op == "linear" and len(node.inputs) == 3 else None
        if match is None:
            rewriter.keep(node)
        else:
            rewriter.replace(node.result, _emit(rewriter, node, match))
    return rewriter.finish()


def asked_of(search: Search, value: Value) -> Asked | None:
    """The parts of ``heads(linear(x) * scale) @ weights``, heads in rows."""
    flat = search.maker(value, "reshape")
    product = search.maker(flat.inputs[0], "matmul") if flat else None
    return _product_of(search, product) if product else None


def _product_of(search: Search, product: Node) -> Asked | None:
    weights = product.inputs[1]
    if weights.name not in search.weights or weights.type.rank != 4:
        return None
    found = heads_of(search, product.inputs[0])
    if found is None or weights.type.shape[0] != 1:
        return None
    layer, scale, heads = found
    return Asked(layer, scale, weights, heads)


def heads_of(search: Search, value: Value) -> tuple[Layer, float, int] | None:
    """The layer that makes [N, h, T, D], what it is scaled by, and the number of heads."""
    moved = search.maker(value, "transpose")
    split = search.maker(moved.inputs[0], "reshape") if moved else None
    if moved is None or split is None or moved.attributes["axes"] != SPLIT_HEADS:
        return None
    source, scale = split.inputs[0], 1.0
    scaled = search.maker(source, "mul")
    if scaled is not None:
        number = search.maker(scaled.inputs[1], "constant")
        literal = number.attributes["value"] if number else None
        array = getattr(literal, "array", None)
        if array is None or array.size != 1:
            return None
        source, scale = scaled.inputs[0], float(array.reshape(()))
    layer = search.layer(source)
    if layer is None or split.result.type.rank != 4:
        return None
    return layer, scale, width(split.result, 2)


def _match(search: Search, node: Node) -> _Match | None:
    added = search.only(node.inputs[0], "add")
    joined = search.only(added.inputs[0], "reshape") if added else None
    moved = search.only(joined.inputs[0], "transpose") if joined else None
    product = search.only(moved.inputs[0], "matmul") if moved else None
    if added is None or moved is None or product is None:
        return None
    bias, values = added.inputs[1], product.inputs[1]
    known = bias.name in search.weights and values.name in search.weights
    if not known or bias.type.rank != 1 or moved.attributes["axes"] != SPLIT_HEADS:
        return None
    split = search.only(product.inputs[0], "reshape")
    average = search.only(split.inputs[0], "matmul") if split else None
    soft = search.only(average.inputs[0], "softmax") if average else None
    transposed = search.only(soft.inputs[0], "transpose") if soft else None
    scores = search.only(transposed.inputs[0], "matmul") if transposed else None
    if average is None or soft is None or transposed is None or scores is None:
        return None
    last = soft.attributes["axis"] in (-1, soft.result.type.rank - 1)
    across = search.only(scores.inputs[1], "transpose")
    if across is None or not last:
        return None
    if not transposed.attributes["axes"] == across.attributes["axes"] == _SWAPPED:
        return None
    asked, keys, image = asked_of(search, across.inputs[0]), scores.inputs[0], average.inputs[1]
    if asked is None or keys.type != image.type:
        return None
    if keys.type.shape[0] != asked.layer.x.type.shape[0] or asked.layer.x.type.rank != 3:
        return None
    return _Match(asked, keys, image, values, bias)


def head_products(rewriter: Rewriter, asked: Asked) -> tuple[Value, Value]:
    """Weight [h*C, in] and bias [h*C] of one linear layer for projection and product."""
    weight, bias = asked.layer.weights(rewriter)
    heads, C, ins = asked.heads, width(asked.weights), width(weight)
    D = width(asked.weights, 2)
    transposed = rewriter.emit("transpose", rewriter.new(asked.weights), axes=(0, 1, 3, 2))
    scale = rewriter.constant(asked.scale, "f32")  # type: ignore[arg-type]  # a number is an array
    made = []
    for value, columns in ((weight, ins), (bias, 1)):
        split = rewriter.emit("reshape", value, shape=(1, heads, D, columns))
        product = rewriter.emit("mul", rewriter.emit("matmul", transposed, split), scale)
        shape = (heads * C, ins) if value is weight else (heads * C,)
        made.append(rewriter.emit("reshape", product, shape=shape))
    return made[0], made[1]


def _emit(rewriter: Rewriter, node: Node, match: _Match) -> Value:
    asked, heads, C = match.asked, match.asked.heads, width(match.image)
    x = rewriter.new(asked.layer.x)
    N, T, _ = x.type.shape
    queries = rewriter.emit("linear", x, *head_products(rewriter, asked))
    queries = rewriter.emit("reshape", queries, shape=(N, T * heads, C))
    keys, image = rewriter.new(match.keys), rewriter.new(match.image)
    y = rewriter.emit("attention", queries, keys, image, heads=1, scale=1.0)
    y = rewriter.emit("reshape", y, shape=(N, T, heads * C))
    out, bias = (rewriter.new(value) for value in node.inputs[1:])
    moved = rewriter.emit("linear", rewriter.new(match.bias), out, bias)
    wide, D = width(node.result), width(match.values)
    split = rewriter.emit("reshape", out, shape=(1, wide, heads, D))
    split = rewriter.emit("transpose", split, axes=SPLIT_HEADS)  # [1, h, out, D]
    values = rewriter.emit("transpose", rewriter.new(match.values), axes=(0, 1, 3, 2))
    weight = rewriter.emit("matmul", split, values)  # [1, h, out, C]
    weight = rewriter.emit("transpose", weight, axes=SPLIT_HEADS)
    weight = rewriter.emit("reshape", weight, shape=(wide, heads * C))
    return rewriter.emit("linear", y, weight, moved, exact=node.exact, **node.attributes)

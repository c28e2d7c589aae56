"""fuse_attention: recognise attention written out as products and a softmax.

    %0 = transpose(%k, axes=(0,2,1))
    %1 = matmul(%q, %0)
    %2 = mul(%1, 0.125)
    %3 = add(%2, %mask)           =>    %0 = attention(%q, %k, %v, %mask, heads=1, scale=0.125)
    %4 = softmax(%3, axis=-1)           return y=%0
    %5 = matmul(%4, %v)
    return y=%5

Scale and mask are optional; `div` by a number counts as scale. Intermediate values must have no
other reader. Where q, k and v are split into heads by reshape and transpose and the result is
joined again, those nodes are removed too and `heads` is their number.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

from samgraph.graph.dims import Dim
from samgraph.graph.graph import Graph, Node, Value
from samgraph.passes.rewriter import Rewriter

_SPLIT = (0, 2, 1, 3)  # [B, T, heads, D] <-> [B, heads, T, D]


@dataclass(frozen=True, slots=True)
class _Parts:
    q: Value
    k: Value  # still transposed: [..., D, S]
    v: Value
    mask: Value | None
    scale: float
    exact: bool  # if any of the nodes is exact


def fuse_attention(graph: Graph) -> Graph:
    """First the products and the softmax, then the heads."""
    fused = _fuse(graph) if graph.has("softmax") else graph
    return _join_heads(fused) if fused.has("attention") else fused


def _fuse(graph: Graph) -> Graph:
    rewriter = Rewriter(graph)
    uses = graph.use_counts()
    for node in graph:
        rewriter.keep(node)
        parts = _match(rewriter, node, uses) if node.op == "matmul" else None
        if parts is None:
            continue
        keys = _transposed(rewriter, parts.k, parts.exact)
        inputs = [parts.q, keys, parts.v]
        if parts.mask is not None:
            inputs.append(_with_head_axis(rewriter, parts.mask, parts.exact))
        fused = rewriter.emit("attention", *inputs, exact=parts.exact, heads=1, scale=parts.scale)
        rewriter.replace(node.result, fused)
    return rewriter.finish()


def _match(rewriter: Rewriter, node: Node, uses: dict[str, int]) -> _Parts | None:
    """The parts of ``softmax(q @ k * scale + mask) @ v``, or None."""

    def step(value: Value, *ops: str) -> Node | None:
        made = rewriter.maker(value)
        return made if made is not None and made.op in ops and uses.get(value.name) == 1 else None

    weights, v = (rewriter.new(value) for value in node.inputs)
    softmax = step(weights, "softmax")
    if softmax is None or softmax.integer("axis") not in (-1, weights.type.rank - 1):
        return None
    added = step(softmax.inputs[0], "add")
    orders: list[tuple[Value, Value | None]] = [(softmax.inputs[0], None)]
    if added is not None:  # either side may be the mask
        left, right = added.inputs
        orders = [(left, right), (right, left)]
    for scores, mask in orders:
        found = _scaled_product(step, rewriter, scores)
        if found is None or scores.type != softmax.result.type:  # a mask must not add axes
            continue
        product, scale, exact = found
        q, k = product.inputs
        if q.type.shape[:-2] == k.type.shape[:-2] == v.type.shape[:-2]:
            exact = exact or node.exact or softmax.exact or (added is not None and added.exact)
            return _Parts(q, k, v, mask, scale, exact)
    return None


def _scaled_product(
    step: Callable[..., Node | None], rewriter: Rewriter, scores: Value
) -> tuple[Node, float, bool] | None:
    """The product that gives the scores, their scale, and whether it is exact."""
    scaled, scale = step(scores, "mul", "div"), 1.0
    if scaled is not None:
        found = _scale(rewriter, scaled)
        if found is None:
            return None
        scores, scale = found
    product = step(scores, "matmul")
    if product is None or not 0 < scale < math.inf:
        return None
    return product, scale, product.exact or (scaled is not None and scaled.exact)


def _scale(rewriter: Rewriter, node: Node) -> tuple[Value, float] | None:
    """The scaled value and the number it is scaled by."""
    for value, number in (node.inputs, node.inputs[::-1]):
        array = rewriter.constant_of(number)
        if array is None or array.size != 1 or value.type != node.result.type:
            continue
        factor = float(array.reshape(()))
        if node.op == "mul":
            return value, factor
        if number is node.inputs[1] and factor != 0:
            return value, 1.0 / factor
    return None


def _transposed(rewriter: Rewriter, keys: Value, exact: bool) -> Value:
    """Keys as [..., S, D]: remove a transposition, or add one."""
    rank = keys.type.rank
    axes = (*range(rank - 2), rank - 1, rank - 2)
    made = rewriter.maker(keys)
    if made is not None and made.op == "transpose" and made.integers("axes") == axes:
        return made.inputs[0]
    return rewriter.emit("transpose", keys, exact=exact, axes=axes)


def _with_head_axis(rewriter: Rewriter, mask: Value, exact: bool) -> Value:
    """A mask over [..., T, S] as a mask over [..., heads=1, T, S]."""
    shape = mask.type.shape
    if len(shape) <= 2:
        return mask
    return rewriter.emit("reshape", mask, exact=exact, shape=(*shape[:-2], 1, *shape[-2:]))


def _join_heads(graph: Graph) -> Graph:
    """Attention between head splits and a head join becomes attention with heads."""
    rewriter = Rewriter(graph)
    uses = graph.use_counts()
    for node in graph:
        rewriter.keep(node)
        joined = _joined(rewriter, node, uses) if node.op == "reshape" else None
        if joined is not None:
            rewriter.replace(node.result, joined)
    return rewriter.finish()


def _joined(rewriter: Rewriter, node: Node, uses: dict[str, int]) -> Value | None:
    moved = rewriter.maker(rewriter.new(node.inputs[0]))
    if moved is None or moved.op != "transpose" or moved.integers("axes") != _SPLIT:
        return None
    fused = rewriter.maker(moved.inputs[0])
    if fused is None or fused.op != "attention" or fused.integer("heads") != 1:
        return None
    if uses[moved.result.name] != 1 or uses.get(fused.result.name, 1) != 1:
        return None
    sources = [_unsplit(rewriter, value) for value in fused.inputs[:3]]
    q, k, v = sources
    if q is None or k is None or v is None:
        return None
    heads = fused.result.type.shape[1]
    if not isinstance(heads, int) or node.result.type.shape != _flat(q, v):
        return None
    masks = [_without_head_axis(rewriter, mask, fused.exact) for mask in fused.inputs[3:]]
    scale = fused.number("scale")
    return rewriter.emit("attention", q, k, v, *masks, exact=fused.exact, heads=heads, scale=scale)


def _flat(q: Value, v: Value) -> tuple[Dim, ...]:
    return (*q.type.shape[:-1], v.type.shape[-1])


def _unsplit(rewriter: Rewriter, value: Value) -> Value | None:
    """[B, heads, T, D] back to the [B, T, heads*D] it was split from."""
    moved = rewriter.maker(value)
    if moved is None or moved.op != "transpose" or moved.integers("axes") != _SPLIT:
        return None
    split = rewriter.maker(moved.inputs[0])
    if split is None or split.op != "reshape" or split.inputs[0].type.rank != 3:
        return None
    return (
        split.inputs[0] if split.result.type.shape[:2] == split.inputs[0].type.shape[:2] else None
    )


def _without_head_axis(rewriter: Rewriter, mask: Value, exact: bool) -> Value:
    """A mask over [B, heads, 1, T, S] as a mask over [B, heads, T, S]."""
    shape = mask.type.shape
    if len(shape) <= 2:
        return mask
    return rewriter.emit("reshape", mask, exact=exact, shape=(*shape[:-3], *shape[-2:]))

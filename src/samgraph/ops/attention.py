"""attention: for each query the average of the values, weighted by the softmax of its scores.

    y = softmax(scale * q @ k.T + mask) @ v        in each head

q is [..., T, heads*D], k [..., S, heads*D], v [..., S, heads*E]: the last axis holds the heads
side by side, and the width E of a value may differ from the width D of a key. The optional
mask is added to the scores and broadcasts to [..., heads, T, S].
"""

import numpy as np

from samgraph.graph.builder import Tensor, emit
from samgraph.graph.dims import Dim, divide, product
from samgraph.graph.registry import expect, register
from samgraph.graph.types import Array, TensorType
from samgraph.ops.rules import broadcast, need_float, widen

_BLOCK = 1 << 24  # scores held at once by the reference: 64 MB of float32


def attention(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, *, heads: int, scale: float
) -> Tensor:
    """Attention of q over k and v: [..., T, heads*D] -> [..., T, heads*E]."""
    return emit("attention", q, k, v, mask, heads=heads, scale=float(scale))


def infer(
    q: TensorType,
    k: TensorType,
    v: TensorType,
    mask: TensorType | None = None,
    *,
    heads: int,
    scale: float,
) -> TensorType:
    """The queries' shape with the values' width."""
    need_float("attention", q, k, v, *([mask] if mask else []))
    shapes = f"q: {q}, k: {k}, v: {v}"
    ok = q.rank >= 2 and k.rank == v.rank == q.rank
    expect(ok, "attention", "q, k and v need equal ranks", got=shapes, want="[..., T, C]")
    ok = q.shape[-1] == k.shape[-1] and q.shape[:-2] == k.shape[:-2]
    expect(ok, "attention", "q and k do not fit", got=shapes, want="equal widths and batches")
    ok = k.shape[:-1] == v.shape[:-1]
    expect(ok, "attention", "k and v do not fit", got=shapes, want="as many keys as values")
    expect(k.shape[-2] != 0, "attention", "there are no keys", got=shapes, want="at least one")
    widths = (divide(q.shape[-1], heads), divide(v.shape[-1], heads)) if heads >= 1 else (None,)
    want = f"widths that {heads} divides"
    expect(None not in widths, "attention", "heads do not fit", got=shapes, want=want)
    expect(scale > 0, "attention", "`scale` must be positive", got=scale, want="> 0")
    if mask:
        scores = q.reshaped((*q.shape[:-2], heads, q.shape[-2], k.shape[-2]))
        ok = broadcast("attention", scores, mask) == scores.shape
        expect(ok, "attention", "the mask does not fit the scores", got=mask, want=scores)
    return q.reshaped((*q.shape[:-1], v.shape[-1]))


def reference(
    q: Array, k: Array, v: Array, mask: Array | None = None, *, heads: int, scale: float
) -> Array:
    """Each head by the formula, a block of queries at a time."""
    queries, keys, values = (_split(widen(x), heads) for x in (q, k, v))
    scores_shape = (*queries.shape[:-1], keys.shape[-2])
    bias = None if mask is None else np.broadcast_to(widen(mask), scores_shape)
    y = np.empty((*queries.shape[:-1], values.shape[-1]), queries.dtype)
    step = max(1, _BLOCK // max(1, int(np.prod(scores_shape[:-2])) * scores_shape[-1]))
    for start in range(0, queries.shape[-2], step):
        rows = slice(start, start + step)
        scores = queries[..., rows, :] @ np.swapaxes(keys, -1, -2) * queries.dtype.type(scale)
        if bias is not None:
            scores = scores + bias[..., rows, :]
        powers = np.exp(scores - scores.max(-1, keepdims=True))
        y[..., rows, :] = (powers / powers.sum(-1, keepdims=True)) @ values
    joined = np.swapaxes(y, -2, -3).reshape(*q.shape[:-1], v.shape[-1])
    return joined.astype(q.dtype)


def _split(x: Array, heads: int) -> Array:
    """[..., T, heads*D] -> [..., heads, T, D]."""
    return np.swapaxes(x.reshape(*x.shape[:-1], heads, x.shape[-1] // heads), -2, -3)


def work(result: TensorType, q: TensorType, k: TensorType, *_: TensorType, **__: object) -> Dim:
    """Multiply-adds of the scores and of the weighted average."""
    return (product(q.shape) + product(result.shape)) * k.shape[-2]


register("attention", infer=infer, reference=reference, work=work, meaning=__doc__)

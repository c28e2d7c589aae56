"""window_attention: attention inside each window of a map, read in place.

q [B, H, W, h*D], or [B, H/2, W/2, h*D] where queries were pooled; k and v [B, H, W, h*D]. Windows
of `window` (height, width) that do not divide the map reach beyond it; keys and values there are
`k_bias` and `v_bias` [h*D], the projections of zeros. Gives a map shaped as `q`.
"""

import numpy as np

from samgraph.graph.dims import Dim
from samgraph.graph.registry import ENGINE_OPS, OPS, expect, register
from samgraph.graph.types import Array, TensorType
from samgraph.ops.rules import need_float

Pair = tuple[int, int]


def infer(
    q: TensorType,
    k: TensorType,
    v: TensorType,
    k_bias: TensorType,
    v_bias: TensorType,
    *,
    heads: int,
    scale: float,
    window: Pair,
) -> TensorType:
    """The type of `q`."""
    need_float("window_attention", q, k, v, k_bias, v_bias)
    shapes = f"q: {q}, k: {k}, v: {v}"
    ok = q.rank == 4 and k == v and k.rank == 4 and q.shape[3] == k.shape[3]
    expect(ok, "window_attention", "q, k and v do not fit", got=shapes, want="[B, H, W, C]")
    sides = [side for side in (*q.shape[1:3], *k.shape[1:3]) if isinstance(side, int)]
    expect(len(sides) == 4, "window_attention", "sides must be known", got=shapes, want="numbers")
    pool = sides[2] // max(sides[0], 1)
    ok = pool in (1, 2) and [side * pool for side in sides[:2]] == sides[2:]
    expect(ok, "window_attention", "q is as large as k, or half", got=shapes, want="H or H/2")
    ok = min(window) >= 1 and all(side % pool == 0 for side in window) and scale > 0
    expect(ok, "window_attention", "bad window or scale", got=window, want=f"multiples of {pool}")
    bias = k.reshaped(k.shape[3:])
    ok = k_bias == bias and v_bias == bias
    expect(ok, "window_attention", "one bias per channel", got=f"{k_bias}, {v_bias}", want=bias)
    width = k.shape[3]
    ok = heads >= 1 and isinstance(width, int) and width % heads == 0
    expect(ok, "window_attention", "heads do not fit", got=width, want=f"n * {heads}")
    return q


def reference(
    q: Array,
    k: Array,
    v: Array,
    k_bias: Array,
    v_bias: Array,
    *,
    heads: int,
    scale: float,
    window: Pair,
) -> Array:
    """Partition into windows, attention, unpartition."""
    pool = k.shape[1] // q.shape[1]
    small = (window[0] // pool, window[1] // pool)
    cut = [_cut(q, small, q.dtype.type(0)), _cut(k, window, k_bias), _cut(v, window, v_bias)]
    y = OPS["attention"].reference(*cut, heads=heads, scale=scale)
    B, H, W, C = q.shape
    down, across = -(-H // small[0]), -(-W // small[1])
    whole = y.reshape(B, down, across, *small, C).transpose(0, 1, 3, 2, 4, 5)
    return whole.reshape(B, down * small[0], across * small[1], C)[:, :H, :W]


def _cut(x: Array, window: Pair, fill: Array) -> Array:
    """[B, H, W, C] -> [B*n, h*w, C], padded with `fill`."""
    (B, H, W, C), (h, w) = x.shape, window
    down, across = -(-H // h), -(-W // w)
    whole = np.empty((B, down * h, across * w, C), x.dtype)
    whole[...] = fill
    whole[:, :H, :W] = x
    split = whole.reshape(B, down, h, across, w, C).transpose(0, 1, 3, 2, 4, 5)
    return split.reshape(B * down * across, h * w, C)


def work(
    result: TensorType,
    q: TensorType,
    k: TensorType,
    *_: TensorType,
    window: Pair,
    **__: object,
) -> Dim:
    """Scores, and the weighted average."""
    tokens: Dim = 2 * window[0] * window[1]
    for side in q.shape:
        tokens = tokens * side
    return tokens


register(
    "window_attention",
    infer=infer,
    reference=reference,
    work=work,
    meaning=__doc__,
    table=ENGINE_OPS,
)

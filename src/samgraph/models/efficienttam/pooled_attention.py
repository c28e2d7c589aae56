"""Cross-attention to a pooled memory: the variants `_1` and `_2` of EfficientTAM.

    keys and values of remembered frames   rotated, then averaged over 2 x 2 cells of each frame
    pointers                               as they are
    `_1`  a pooled token stands for four: 2 ln 2 is added to its score
    `_2`  2 ln 2 is added to every channel of its key instead

With one remembered frame attention is not pooled: the model has a graph for that.

Shapes: N objects, M memory tokens, of which the last K are pointers, C channels, T cells.
"""

import math

from samgraph import ops
from samgraph.graph import Dim, Scope, Tensor
from samgraph.graph.dims import floor_divide
from samgraph.models.efficienttam.config import EfficientTamConfig
from samgraph.models.sam2.layers import linear, width
from samgraph.models.sam2.memory_attention import project, rotate, score_scale
from samgraph.ops.slice import slice_along

_WEIGHT = 2 * math.log(2)


def pooled_attention(
    at: Scope, config: EfficientTamConfig, q: Tensor, k: Tensor, v: Tensor, unrotated: Dim
) -> Tensor:
    """Attention with its projections: q [N, T, C], k and v [N, M, 64] -> [N, T, C].

    Values are pooled before their projection, which gives the same.
    """
    cells, pointers = pool(config, v, unrotated)
    q, k, v = project(at, config, q, k, _joined(cells, pointers, unrotated))
    q, k = rotate(config, q, 0), rotate(config, k, unrotated)
    q, k = at.mark("q_rotated", q), at.mark("k_rotated", k)
    cells, pointers = pool(config, k, unrotated)
    k, mask = _joined(cells, pointers, unrotated), None
    if unrotated != 0:  # without pointers all scores of a query grow alike
        count = cells.shape[1]
        if config.pooling == "keys":
            k = k + _weights(at, count, unrotated).reshape(1, count + unrotated, 1)
        else:
            mask = _weights(at, count, unrotated)
    y = ops.attention(q, k, v, mask, heads=config.memory_heads, scale=score_scale(config))
    return linear(at / "out_proj", y, config.channels)


def pool(config: EfficientTamConfig, x: Tensor, unrotated: Dim) -> tuple[Tensor, Tensor]:
    """The cells of all frames averaged 2 x 2, and the pointers: [N, M, C] -> [N, (M-K)/4, C], K."""
    N, M, C, half = x.shape[0], x.shape[1], width(x), config.grid // 2
    cells = slice_along(x, 1, 0, M - unrotated)
    rows = floor_divide(M - unrotated, 2 * config.grid)
    pairs = ops.reduce(cells.reshape(N, rows, 2, 2 * half * C), (2,), how="mean")
    pooled = ops.reduce(pairs.reshape(N, rows * half, 2, C), (2,), how="mean")
    return pooled, slice_along(x, 1, M - unrotated, M)


def _joined(cells: Tensor, pointers: Tensor, unrotated: Dim) -> Tensor:
    return cells if unrotated == 0 else ops.concat([cells, pointers], axis=1)


def _weights(at: Scope, cells: Dim, pointers: Dim) -> Tensor:
    """2 ln 2 for each pooled token, zero for pointers: [1, 1, 1, (M-K)/4 + K]."""
    parts = [
        ops.expand(at.builder.constant(value, "f32"), 1, 1, 1, count)
        for value, count in ((_WEIGHT, cells), (0.0, pointers))
    ]
    return ops.concat(parts, axis=3)

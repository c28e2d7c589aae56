"""Cross-attention to a pooled memory: the variants `_1` and `_2` of EfficientTAM.

    keys and values of remembered frames   rotated, then averaged over 2 x 2 cells of each frame
    pointers                               as they are
    `_1`  a pooled token stands for four: 2 ln 2 is added to its score
    `_2`  2 ln 2 is added to every channel of its key instead

With one remembered frame attention is not pooled: the model has a graph for that.

With `memory_pool`, an approximation, frames but the last are averages of 2 x 2 cells before that:
their tokens stand for 4 x 4 cells, and in both variants 2 ln 2 more is added to their scores.

Shapes: N objects, M memory tokens, of which the last K are pointers, C channels, T cells.
"""

import math

from samgraph import ops
from samgraph.graph import Dim, Scope, Tensor
from samgraph.graph.dims import floor_divide
from samgraph.models.efficienttam.config import EfficientTamConfig
from samgraph.models.sam2.layers import linear
from samgraph.models.sam2.memory_attention import project, rotate, score_scale
from samgraph.models.sam2.memory_bank import average_cells, pooled_tokens
from samgraph.ops.slice import slice_along

_WEIGHT = 2 * math.log(2)


def pooled_attention(
    at: Scope, config: EfficientTamConfig, q: Tensor, k: Tensor, v: Tensor, unrotated: Dim
) -> Tensor:
    """Attention with its projections: q [N, T, C], k and v [N, M, 64] -> [N, T, C].

    Values are pooled before their projection, which gives the same.
    """
    cells = k.shape[1] - unrotated
    older = pooled_tokens(config, cells)
    q, k, v = project(at, config, q, k, pool(config, v, older, unrotated))
    q, k = rotate(config, q, 0), rotate(config, k, unrotated, pooled=older)
    q, k = at.mark("q_rotated", q), at.mark("k_rotated", k)
    k = pool(config, k, older, unrotated)
    mask, pooled, twice = None, floor_divide(cells, 4), floor_divide(older, 4)
    if unrotated != 0:  # without pointers all scores of a query grow alike
        weights = _weights(at, (_WEIGHT, pooled), (0.0, unrotated))
        if config.pooling == "keys":
            k = k + weights.reshape(1, pooled + unrotated, 1)
        else:
            mask = weights
    if twice != 0:
        more = _weights(at, (_WEIGHT, twice), (0.0, pooled - twice + unrotated))
        mask = more if mask is None else mask + more
    y = ops.attention(q, k, v, mask, heads=config.memory_heads, scale=score_scale(config))
    return linear(at / "out_proj", y, config.channels)


def pool(config: EfficientTamConfig, x: Tensor, older: Dim, unrotated: Dim) -> Tensor:
    """Cells averaged 2 x 2, then pointers: [N, M, C] -> [N, (M-K)/4 + K, C].

    The first `older` tokens are averages of 2 x 2 cells themselves, and are averaged again.
    """
    end, side = x.shape[1] - unrotated, config.grid
    parts = [average_cells(slice_along(x, 1, older, end), side)]
    if older != 0:
        parts.insert(0, average_cells(slice_along(x, 1, 0, older), side // 2))
    if unrotated != 0:
        parts.append(slice_along(x, 1, end, x.shape[1]))
    return ops.concat(parts, axis=1) if len(parts) > 1 else parts[0]


def _weights(at: Scope, *parts: tuple[float, Dim]) -> Tensor:
    """A weight for so many keys, and for those that follow: [1, 1, 1, S]."""
    return ops.concat(
        [ops.expand(at.builder.constant(value, "f32"), 1, 1, 1, count) for value, count in parts],
        axis=3,
    )

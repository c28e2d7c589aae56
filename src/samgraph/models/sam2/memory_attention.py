"""Memory attention: the current frame attends to the memory bank (section 4).

    for each layer   x + self-attention(norm(x))           queries and keys rotated (axial RoPE)
                     x + cross-attention(norm(x), memory)  keys: memory + position, rotated
                     x + mlp(norm(x))                      values: memory alone
    at the end       norm

The memory is whole frames, oldest conditioning frames first, then object pointers, which have
no position in the grid and are not rotated. Keys and values have 64 channels, the frame 256.
Of frames whose 2 x 2 cells are averaged (`memory_pool`) a token counts as four.

Where positions are added is set by the config (`pos_enc_at_...`), as in the original.

Shapes: N objects, T cells of the grid, M memory tokens, K of them pointers, C channels.
"""

import math
from collections.abc import Callable
from typing import Any

from samgraph import ops
from samgraph.errors import ShapeError
from samgraph.graph import Dim, Scope, Tensor
from samgraph.models.sam2.layers import layer_norm, linear
from samgraph.models.sam2.memory_bank import pooled_tokens
from samgraph.models.sam2.tracker_config import TrackerConfig

_POSITION_SHARE = 0.1
# Attention with its projections: scope, config, queries, keys, values, unrotated keys.
Attend = Callable[[Scope, Any, Tensor, Tensor, Tensor, Dim], Tensor]


def memory_attention(
    at: Scope,
    config: TrackerConfig,
    current: Tensor,
    position: Tensor,
    memory: Tensor,
    memory_position: Tensor,
    unrotated: Dim,
    attend: Attend | None = None,
) -> Tensor:
    """current [N or 1, T, C], its sine position [1, T, C], memory [N, M, 64] -> [N, T, C].

    A tenth of the position is added once, at the start. The last `unrotated` tokens of the memory
    have no position in the grid. `attend` is the cross-attention, by default `rope_attention`.
    """
    _check_rope(config, memory.shape[1] - unrotated)
    x = at.mark("input", current + position * _POSITION_SHARE)
    memory = at.mark("memory", memory)
    memory_position = at.mark("memory_position", memory_position)
    for i in range(config.memory_layers):
        layer = at / "layers" / i
        x = memory_layer(layer, config, x, position, memory, memory_position, unrotated, attend)
    return layer_norm(at / "norm", x, eps=config.transformer_norm_eps)


def memory_layer(
    at: Scope,
    config: TrackerConfig,
    x: Tensor,
    position: Tensor,
    memory: Tensor,
    memory_position: Tensor,
    unrotated: Dim,
    attend: Attend | None = None,
) -> Tensor:
    """One layer: [N or 1, T, C] -> [N, T, C]. Self-attention of a shared frame is computed once."""
    x = at.mark("after_self_attn", self_attention_step(at, config, x, position))
    x = ops.expand(x, memory.shape[0], *x.shape[1:])
    x = cross_attention_step(at, config, x, position, memory, memory_position, unrotated, attend)
    return at.mark("output", feedforward_step(at, config, at.mark("after_cross_attn", x)))


def self_attention_step(at: Scope, config: TrackerConfig, x: Tensor, position: Tensor) -> Tensor:
    """Self-attention of the frame."""
    normal = layer_norm(at / "norm1", x, eps=config.transformer_norm_eps)
    q = normal + position if config.pos_enc_at_attn else normal
    return x + rope_attention(at / "self_attn", config, q, q, normal, 0)


def cross_attention_step(
    at: Scope,
    config: TrackerConfig,
    x: Tensor,
    position: Tensor,
    memory: Tensor,
    memory_position: Tensor,
    unrotated: Dim,
    attend: Attend | None = None,
) -> Tensor:
    """Cross-attention to the memory."""
    normal = layer_norm(at / "norm2", x, eps=config.transformer_norm_eps)
    q = normal + position if config.pos_enc_at_cross_attn_queries else normal
    k = memory + memory_position if config.pos_enc_at_cross_attn_keys else memory
    attend = attend or rope_attention
    return x + attend(at / "cross_attn_image", config, q, k, memory, unrotated)


def feedforward_step(at: Scope, config: TrackerConfig, x: Tensor) -> Tensor:
    """Two linear layers with a ReLU between."""
    normal = layer_norm(at / "norm3", x, eps=config.transformer_norm_eps)
    hidden = ops.relu(linear(at / "linear1", normal, config.memory_feedforward))
    return x + linear(at / "linear2", hidden, config.channels)


def rope_attention(
    at: Scope,
    config: TrackerConfig,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    unrotated: Dim,
    *,
    key_side: int | None = None,
) -> Tensor:
    """Attention with its projections, queries and keys rotated by their position in the grid.

    `key_side` is the side of the keys' grid, if it is not that of the queries.
    """
    q, k, v = project(at, config, q, k, v)
    pooled = pooled_tokens(config, k.shape[1] - unrotated, key_side)
    q, k = rotate(config, q, 0), rotate(config, k, unrotated, key_side, pooled)
    q, k = at.mark("q_rotated", q), at.mark("k_rotated", k)
    mask = None if pooled == 0 else _pooled_weight(at, pooled, k.shape[1])
    y = ops.attention(q, k, v, mask, heads=config.memory_heads, scale=score_scale(config))
    return linear(at / "out_proj", y, config.channels)


def project(
    at: Scope, config: TrackerConfig, q: Tensor, k: Tensor, v: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The projections of queries, keys and values: [N, M, C] each."""
    q, k, v = (
        at.mark(name, linear(at / f"{name}_proj", x, config.channels))
        for name, x in (("q", q), ("k", k), ("v", v))
    )
    return q, k, v


def rotate(
    config: TrackerConfig,
    x: Tensor,
    unrotated: Dim,
    side: int | None = None,
    pooled: Dim = 0,
) -> Tensor:
    """Tokens [N, M, C] rotated by their position in a grid of `side`, by default the frame's."""
    side = side or config.grid
    theta, heads = config.rope_theta, config.memory_heads
    return ops.axial_rope(
        x, grid=(side, side), theta=theta, heads=heads, unrotated=unrotated, pooled=pooled
    )


def score_scale(config: TrackerConfig) -> float:
    """The scale of the scores: one over the square root of the width of a head."""
    return float((config.channels // config.memory_heads) ** -0.5)


def _pooled_weight(at: Scope, pooled: Dim, keys: Dim) -> Tensor:
    """What is added to the scores of keys, [M]: an average of four cells has their weight."""
    four, one = (at.builder.constant(math.log(count), "f32") for count in (4, 1))
    return ops.concat([ops.expand(four, pooled), ops.expand(one, keys - pooled)], axis=0)


def _check_rope(config: TrackerConfig, rotated: Dim) -> None:
    """Without `rope_k_repeat` the table of angles is not repeated: it covers one frame."""
    if not config.rope_k_repeat and rotated != config.grid**2:
        raise ShapeError(
            "without `rope_k_repeat` the memory is one frame",
            got=f"{rotated} rotated keys",
            expected=f"{config.grid**2}",
        )

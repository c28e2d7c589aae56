"""Memory attention: the current frame looks at what is remembered (section 4).

    for each layer   x + self-attention(norm(x))          both turned by place (axial RoPE)
                     x + cross-attention(norm(x), memory)  keys: memory + position, turned
                     x + mlp(norm(x))                      values: memory alone
    at the end       norm

The memory is whole frames, oldest conditioning frames first, then object pointers, which have
no place and are not turned. Keys and values have 64 channels, the frame 256.

Shapes: N objects, T cells of the grid, M memory tokens, K of them pointers, C channels.
"""

from samgraph import ops
from samgraph.graph import Dim, Scope, Tensor
from samgraph.models.sam2.config import Sam2Config
from samgraph.models.sam2.layers import layer_norm, linear

_EPS = 1e-5
_POSITION_SHARE = 0.1


def memory_attention(
    at: Scope,
    config: Sam2Config,
    current: Tensor,
    memory: Tensor,
    memory_position: Tensor,
    pointer_tokens: Dim,
) -> Tensor:
    """current [N or 1, T, C] with its position added, memory [N, M, 64] -> [N, T, C]."""
    x = current
    for i in range(config.memory_layers):
        x = memory_layer(at / "layers" / i, config, x, memory, memory_position, pointer_tokens)
    return layer_norm(at / "norm", x, eps=_EPS)


def with_position(current: Tensor, position: Tensor) -> Tensor:
    """A tenth of the neck's sine position is added once, at the start."""
    return current + position * _POSITION_SHARE


def memory_layer(
    at: Scope,
    config: Sam2Config,
    x: Tensor,
    memory: Tensor,
    memory_position: Tensor,
    pointer_tokens: Dim,
) -> Tensor:
    """One layer: [N or 1, T, C] -> [N, T, C]. One frame for all objects looks at itself once."""
    x = self_attention_step(at, config, x)
    x = ops.expand(x, memory.shape[0], *x.shape[1:])
    x = cross_attention_step(at, config, x, memory, memory_position, pointer_tokens)
    return feedforward_step(at, config, x)


def self_attention_step(at: Scope, config: Sam2Config, x: Tensor) -> Tensor:
    """The frame looks at itself."""
    normal = layer_norm(at / "norm1", x, eps=_EPS)
    return x + rope_attention(at / "self_attn", config, normal, normal, normal, 0)


def cross_attention_step(
    at: Scope,
    config: Sam2Config,
    x: Tensor,
    memory: Tensor,
    memory_position: Tensor,
    pointer_tokens: Dim,
) -> Tensor:
    """The frame looks at the memory."""
    normal = layer_norm(at / "norm2", x, eps=_EPS)
    keys = memory + memory_position
    return x + rope_attention(at / "cross_attn_image", config, normal, keys, memory, pointer_tokens)


def feedforward_step(at: Scope, config: Sam2Config, x: Tensor) -> Tensor:
    """Two linear maps with a ReLU between."""
    normal = layer_norm(at / "norm3", x, eps=_EPS)
    hidden = ops.relu(linear(at / "linear1", normal, config.memory_feedforward))
    return x + linear(at / "linear2", hidden, config.channels)


def rope_attention(
    at: Scope, config: Sam2Config, q: Tensor, k: Tensor, v: Tensor, unrotated: Dim
) -> Tensor:
    """Projected attention with queries and keys turned by their place in the grid."""
    C, heads = config.channels, config.memory_heads
    q, k, v = (linear(at / f"{n}_proj", x, C) for n, x in zip("qkv", (q, k, v), strict=True))
    q, k = (
        ops.axial_rope(
            x,
            grid=(config.grid, config.grid),
            theta=config.rope_theta,
            heads=heads,
            unrotated=rest,
        )
        for x, rest in ((q, 0), (k, unrotated))
    )
    y = ops.attention(q, k, v, heads=heads, scale=(C // heads) ** -0.5)
    return linear(at / "out_proj", y, C)

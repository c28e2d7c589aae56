"""The spatial perceiver: the memory of a frame as 512 tokens (EdgeTAM, section 3).

    global latents    256, each attends to all cells, whose keys and values have a sine position
    windowed latents  16 x 16, each attends to the cells of its own window, without positions
    both              cross-attention, MLP, self-attention, MLP; then a norm

Both go through the same layers. A windowed latent never meets another: self-attention of a single
token is its value.

Shapes: N objects, T cells of the map, L latents, n windows of t cells, C channels of the memory.
"""

from samgraph import ops
from samgraph.graph import Array, Dim, Scope, Tensor
from samgraph.models.edgetam.config import EdgeTamConfig
from samgraph.models.sam2.layers import layer_norm, linear, to_tokens, width
from samgraph.models.sam2.positions import token_positions
from samgraph.models.sam2.windows import partition


def perceiver(at: Scope, config: EdgeTamConfig, memory: Tensor) -> Tensor:
    """A memory [N, C, E, E] -> global latents, then windowed latents: [N, L + n, C]."""
    N, C, n = memory.shape[0], config.memory_channels, config.latent_side**2
    x = to_tokens(memory)
    everywhere = _start(at, "latents", N, config.latents, C)
    windowed = _start(at, "latents_2d", N, n, C).reshape(N * n, 1, C)
    for i in range(config.perceiver_layers):
        layer = at / "layers" / i
        everywhere, windowed = perceiver_layer(layer, config, everywhere, windowed, x)
    latents = ops.concat([everywhere, windowed.reshape(N, n, C)], axis=1)
    return layer_norm(at / "norm", latents, eps=config.transformer_norm_eps)


def _start(at: Scope, name: str, N: Dim, count: int, C: int) -> Tensor:
    return ops.expand(at.weight(name, count, C)[None], N, count, C)


def perceiver_layer(
    at: Scope, config: EdgeTamConfig, everywhere: Tensor, windowed: Tensor, x: Tensor
) -> tuple[Tensor, Tensor]:
    """One layer: latents [N, L, C] and [N*n, 1, C], cells [N, T, C] -> both kinds of latents."""
    k, v = keys_values(at / "attn", config, "norm_x", x)
    position: Array = token_positions(config.memory_channels, config.grid)[None]
    everywhere = everywhere + attend(at / "attn", config, everywhere, k + position, v + position)
    k, v = (windows(config, y) for y in (k, v))
    windowed = windowed + attend(at / "attn", config, windowed, k, v)
    everywhere, windowed = (y + feedforward(at / "ff", config, y) for y in (everywhere, windowed))
    everywhere = everywhere + self_attention(at / "self_attn", config, everywhere)
    windowed = windowed + self_attention(at / "self_attn", config, windowed)
    everywhere, windowed = (
        y + feedforward(at / "self_ff", config, y) for y in (everywhere, windowed)
    )
    return everywhere, windowed


def keys_values(at: Scope, config: EdgeTamConfig, norm: str, x: Tensor) -> tuple[Tensor, Tensor]:
    """Keys and values of tokens, one projection in the checkpoint: [..., C] each."""
    C = width(x)
    normal = layer_norm(at / norm, x, eps=config.transformer_norm_eps)
    weight = (at / "to_kv").weight("weight", 2 * C, C)
    return ops.linear(normal, weight[:C]), ops.linear(normal, weight[C:])


def attend(at: Scope, config: EdgeTamConfig, latents: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Cross-attention of latents [..., L, C] to keys and values [..., T, C]."""
    C = width(latents)
    normal = layer_norm(at / "norm_latents", latents, eps=config.transformer_norm_eps)
    q = linear(at / "to_q", normal, C, bias=False)
    y = ops.attention(q, k, v, heads=1, scale=C**-0.5)
    return linear(at / "to_out", y, C, bias=False)


def self_attention(at: Scope, config: EdgeTamConfig, latents: Tensor) -> Tensor:
    """Self-attention of latents [..., L, C]; of a single one, its value."""
    C = width(latents)
    k, v = keys_values(at, config, "norm", latents)
    if latents.shape[-2] == 1:
        return linear(at / "to_out", v, C, bias=False)
    normal = layer_norm(at / "norm", latents, eps=config.transformer_norm_eps)
    q = linear(at / "to_q", normal, C, bias=False)
    y = ops.attention(q, k, v, heads=1, scale=C**-0.5)
    return linear(at / "to_out", y, C, bias=False)


def feedforward(at: Scope, config: EdgeTamConfig, x: Tensor) -> Tensor:
    """A norm and two linear layers with a GELU between."""
    C = width(x)
    normal = layer_norm(at / 0, x, eps=config.transformer_norm_eps)
    hidden = ops.gelu(linear(at / 1, normal, config.perceiver_ratio * C, bias=False))
    return linear(at / 3, hidden, C, bias=False)


def windows(config: EdgeTamConfig, x: Tensor) -> Tensor:
    """Cells row by row as windows, row by row: [N, T, C] -> [N*n, t, C]."""
    E, side = config.grid, config.grid // config.latent_side
    return partition(x.reshape(x.shape[0], E, E, width(x)), side, side)

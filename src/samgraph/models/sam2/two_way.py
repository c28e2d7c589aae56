"""The two-way transformer: prompt tokens and image attend to each other (SAM, section 3).

    for each layer   tokens   self-attention
                     tokens   cross-attention to the image
                     tokens   MLP
                     image    cross-attention to the tokens
    at the end       tokens   cross-attention to the image once more

The positions of the tokens (the tokens as given) and of the image are added to queries and keys,
never to values. Cross-attention has half the tokens' channels.

Shapes: N prompts, T tokens, I cells of the image, C channels.
"""

from samgraph import ops
from samgraph.graph import Scope, Tensor
from samgraph.models.sam2.layers import layer_norm, linear, mlp
from samgraph.models.sam2.tracker_config import TrackerConfig


def two_way(
    at: Scope,
    config: TrackerConfig,
    tokens: Tensor,
    image: Tensor,
    image_position: Tensor,
    mask: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """tokens [N, T, C], image [N, I, C] -> both, after all layers.

    `mask` [N, 1, 1, T] is added to the scores of the tokens where they are keys.
    """
    position = tokens
    for i in range(config.decoder_depth):
        tokens, image = layer(
            at / "layers" / i,
            config,
            tokens,
            position,
            image,
            image_position,
            mask,
            is_first=i == 0,
        )
    q, k = tokens + position, image + image_position
    attended = attention(at / "final_attn_token_to_image", config, q, k, image, halved=True)
    eps = config.transformer_norm_eps
    return layer_norm(at / "norm_final_attn", tokens + attended, eps=eps), image


def layer(
    at: Scope,
    config: TrackerConfig,
    tokens: Tensor,
    position: Tensor,
    image: Tensor,
    image_position: Tensor,
    mask: Tensor | None,
    *,
    is_first: bool,
) -> tuple[Tensor, Tensor]:
    """One layer: tokens [N, T, C], image [N, I, C] -> both.

    In the first layer tokens are their own position, and self-attention has no residual.
    """
    eps = config.transformer_norm_eps
    q = tokens if is_first else tokens + position
    attended = attention(at / "self_attn", config, q, q, tokens, mask)
    tokens = layer_norm(at / "norm1", attended if is_first else tokens + attended, eps=eps)

    q, k = tokens + position, image + image_position
    attended = attention(at / "cross_attn_token_to_image", config, q, k, image, halved=True)
    tokens = layer_norm(at / "norm2", tokens + attended, eps=eps)

    widths = (config.decoder_feedforward, config.channels)
    tokens = layer_norm(at / "norm3", tokens + mlp(at / "mlp", tokens, widths), eps=eps)

    q, k = image + image_position, tokens + position
    attended = attention(at / "cross_attn_image_to_token", config, q, k, tokens, mask, halved=True)
    image = layer_norm(at / "norm4", image + attended, eps=eps)
    return at.mark("tokens", tokens), at.mark("image", image)


def attention(
    at: Scope,
    config: TrackerConfig,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    *,
    halved: bool = False,
) -> Tensor:
    """Multi-head attention with its projections: q [N, T, C], k and v [N, S, C] -> [N, T, C].

    `mask` broadcasts to [N, heads, T, S] and is added to the scores.
    """
    C, heads = config.channels, config.decoder_heads
    inner = C // 2 if halved else C
    q, k, v = (
        at.mark(name, linear(at / f"{name}_proj", x, inner))
        for name, x in (("q", q), ("k", k), ("v", v))
    )
    y = ops.attention(q, k, v, mask, heads=heads, scale=(inner // heads) ** -0.5)
    return linear(at / "out_proj", y, C)

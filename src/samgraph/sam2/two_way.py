"""The two-way transformer: tokens look at the image and the image looks back (SAM, section 3).

    for each layer   tokens  attend to tokens
                     tokens  attend to the image
                     tokens  through an MLP
                     image   attends to tokens
    at the end       tokens  attend to the image once more

Positions are added to queries and keys, never to values. Where image and tokens meet, the width
is halved. Shapes: N prompts, T tokens, I cells of the image, C channels.
"""

from samgraph import ops
from samgraph.graph import Scope, Tensor
from samgraph.sam2.config import Sam2Config
from samgraph.sam2.layers import layer_norm, linear, mlp, width

_EPS = 1e-5


def two_way(
    at: Scope,
    config: Sam2Config,
    tokens: Tensor,
    image: Tensor,
    image_position: Tensor,
    hidden: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """tokens [N, T, C], image [N, I, C] -> both, having seen each other."""
    position = tokens
    for i in range(config.decoder_depth):
        layer = at / "layers" / i
        tokens, image = two_way_layer(
            layer, config, tokens, position, image, image_position, hidden, first=i == 0
        )
    seen = token_to_image(
        at / "final_attn_token_to_image", config, tokens + position, image + image_position, image
    )
    return layer_norm(at / "norm_final_attn", tokens + seen, eps=_EPS), image


def two_way_layer(
    at: Scope,
    config: Sam2Config,
    tokens: Tensor,
    position: Tensor,
    image: Tensor,
    image_position: Tensor,
    hidden: Tensor | None,
    *,
    first: bool,
) -> tuple[Tensor, Tensor]:
    """One layer. In the first, tokens are their own position, and self-attention replaces them."""
    at_self = at / "self_attn"
    if first:
        tokens = _attention(at_self, config, tokens, tokens, tokens, hidden, halved=False)
    else:
        q = tokens + position
        tokens = tokens + _attention(at_self, config, q, q, tokens, hidden, halved=False)
    tokens = layer_norm(at / "norm1", tokens, eps=_EPS)

    keys = image + image_position
    seen = token_to_image(at / "cross_attn_token_to_image", config, tokens + position, keys, image)
    tokens = layer_norm(at / "norm2", tokens + seen, eps=_EPS)

    hidden_layer = mlp(at / "mlp", tokens, (config.decoder_feedforward, config.channels))
    tokens = layer_norm(at / "norm3", tokens + hidden_layer, eps=_EPS)

    told = _attention(
        at / "cross_attn_image_to_token", config, keys, tokens + position, tokens, hidden
    )
    return tokens, layer_norm(at / "norm4", image + told, eps=_EPS)


def token_to_image(at: Scope, config: Sam2Config, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Tokens take what they need from the image."""
    return _attention(at, config, q, k, v, None)


def _attention(
    at: Scope,
    config: Sam2Config,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    hidden: Tensor | None,
    *,
    halved: bool = True,
) -> Tensor:
    """Projected attention with the decoder's heads: q [N, T, C] -> [N, T, C]."""
    C = width(q)
    inner = C // 2 if halved else C
    q, k, v = (linear(at / f"{n}_proj", x, inner) for n, x in zip("qkv", (q, k, v), strict=True))
    heads = config.decoder_heads
    y = ops.attention(q, k, v, hidden, heads=heads, scale=(inner // heads) ** -0.5)
    return linear(at / "out_proj", y, C)

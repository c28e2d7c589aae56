"""The two-way transformer: tokens look at the image and the image looks back (SAM, section 3).

    for each layer   tokens  attend to tokens
                     tokens  attend to the image
                     tokens  through an MLP
                     image   attends to tokens
    at the end       tokens  attend to the image once more

Positions are added to queries and keys, never to values. Where image and tokens meet, the width
is halved. A few tokens meet thousands of cells there, so the projections of the image are moved
over to the tokens (`token_to_image`, `image_to_token`): the same numbers for less work. In the
first layer the image does not depend on the prompt, and its projections can be had beforehand
(`project`), once for all prompts.

Shapes: N prompts, T tokens, I cells of the image, C channels, h heads of width D.
"""

from dataclasses import dataclass

import numpy as np

from samgraph import ops
from samgraph.graph import Scope, Tensor
from samgraph.models.sam2.config import Sam2Config
from samgraph.models.sam2.layers import layer_norm, linear, mlp, width

_EPS = 1e-5


@dataclass(frozen=True, slots=True)
class Projected:
    """What the first layer wants to know of an image, each [1, I, C/2]."""

    keys: Tensor  # what tokens look for
    values: Tensor  # what they get
    queries: Tensor  # what the image looks for among the tokens


def two_way(
    at: Scope,
    config: Sam2Config,
    tokens: Tensor,
    image: Tensor,
    image_position: Tensor,
    hidden: Tensor | None,
    projected: Projected | None = None,
) -> tuple[Tensor, Tensor]:
    """tokens [N, T, C], image [N, I, C] -> both, having seen each other.

    With `projected`, the image may be one for all prompts, [1, I, C].
    """
    position = tokens
    for i in range(config.decoder_depth):
        layer = at / "layers" / i
        known = projected if i == 0 else None
        tokens = _look_at_tokens(layer, config, tokens, position, hidden, first=i == 0)
        tokens = _look_at_image(layer, config, tokens, position, image, image_position, known)
        image = _look_back(layer, config, tokens, position, image, image_position, hidden, known)
    seen = token_to_image(
        at / "final_attn_token_to_image", config, tokens + position, image + image_position, image
    )
    return layer_norm(at / "norm_final_attn", tokens + seen, eps=_EPS), image


def _look_at_tokens(
    at: Scope,
    config: Sam2Config,
    tokens: Tensor,
    position: Tensor,
    hidden: Tensor | None,
    *,
    first: bool,
) -> Tensor:
    """In the first layer, tokens are their own position, and self-attention replaces them."""
    at_self = at / "self_attn"
    if first:
        tokens = _attention(at_self, config, tokens, tokens, tokens, hidden)
    else:
        q = tokens + position
        tokens = tokens + _attention(at_self, config, q, q, tokens, hidden)
    return layer_norm(at / "norm1", tokens, eps=_EPS)


def _look_at_image(
    at: Scope,
    config: Sam2Config,
    tokens: Tensor,
    position: Tensor,
    image: Tensor,
    image_position: Tensor,
    known: Projected | None,
) -> Tensor:
    """Tokens take what they need from the image, then think about it."""
    at_image, q = at / "cross_attn_token_to_image", tokens + position
    if known is None:
        seen = token_to_image(at_image, config, q, image + image_position, image)
    else:
        seen = _token_to_projected(at_image, config, q, known)
    tokens = layer_norm(at / "norm2", tokens + seen, eps=_EPS)
    thought = mlp(at / "mlp", tokens, (config.decoder_feedforward, config.channels))
    return layer_norm(at / "norm3", tokens + thought, eps=_EPS)


def _look_back(
    at: Scope,
    config: Sam2Config,
    tokens: Tensor,
    position: Tensor,
    image: Tensor,
    image_position: Tensor,
    hidden: Tensor | None,
    known: Projected | None,
) -> Tensor:
    """Every cell of the image takes what it needs from the tokens."""
    at_tokens, k = at / "cross_attn_image_to_token", tokens + position
    queries = image + image_position if known is None else known.queries
    told = image_to_token(
        at_tokens, config, queries, k, tokens, hidden, is_projected=known is not None
    )
    return layer_norm(at / "norm4", image + told, eps=_EPS)


def project(at: Scope, config: Sam2Config, image: Tensor, image_position: Tensor) -> Projected:
    """What the first layer wants of the image: [B, I, C] -> three times [B, I, C/2]."""
    layer, inner = at / "layers" / 0, config.channels // 2
    to_image, to_token = layer / "cross_attn_token_to_image", layer / "cross_attn_image_to_token"
    keys = image + image_position
    return Projected(
        keys=linear(to_image / "k_proj", keys, inner),
        values=linear(to_image / "v_proj", image, inner),
        queries=linear(to_token / "q_proj", keys, inner),
    )


def token_to_image(at: Scope, config: Sam2Config, q: Tensor, keys: Tensor, image: Tensor) -> Tensor:
    """Tokens take what they need from the image: q [N, T, C], keys and image [N, I, C].

    A head's score is (Wq q)'(Wk x) = (Wk'Wq q)'x, so the keys need no projection: the query takes
    it over. The bias of the keys adds one number to all scores of a query, which softmax does not
    see. The weights sum to 1, so the average of Wv x + b is Wv times the average of x, plus b.
    """
    C, heads, inner = config.channels, config.decoder_heads, config.channels // 2
    N, T, _ = q.shape
    asked = _heads(linear(at / "q_proj", q, inner) * _scale(config), heads)
    (at / "k_proj").weight("bias", inner)  # in the checkpoint, and without effect
    moved = ops.matmul(asked, _head_weights(at / "k_proj", config)).reshape(N, heads * T, C)
    scores = ops.matmul(keys, moved.transpose(0, 2, 1)).transpose(0, 2, 1)
    average = ops.matmul(ops.softmax(scores), image).reshape(N, heads, T, C)
    values = ops.matmul(average, _head_weights(at / "v_proj", config).transpose(0, 1, 3, 2))
    joined = values.transpose(0, 2, 1, 3).reshape(N, T, inner)
    return linear(at / "out_proj", joined + (at / "v_proj").weight("bias", inner), C)


def _token_to_projected(at: Scope, config: Sam2Config, q: Tensor, known: Projected) -> Tensor:
    """As `token_to_image`, of one projected image; the tokens of all prompts ask side by side."""
    C, inner = config.channels, config.channels // 2
    N, T, _ = q.shape
    asked = linear(at / "q_proj", q, inner).reshape(1, N * T, inner)
    heads, scale = config.decoder_heads, _scale(config)
    seen = ops.attention(asked, known.keys, known.values, heads=heads, scale=scale)
    return linear(at / "out_proj", seen.reshape(N, T, inner), C)


def image_to_token(
    at: Scope,
    config: Sam2Config,
    queries: Tensor,
    k: Tensor,
    v: Tensor,
    hidden: Tensor | None,
    *,
    is_projected: bool = False,
) -> Tensor:
    """The image takes what it needs from the tokens: queries [N, I, C], k and v [N, T, C].

    As in `token_to_image` the keys take over the projection of the image, here with its bias; and
    the values that of the output, each head with its share of the bias, as the weights of a head
    sum to 1. Queries that are projected already are [1, I, C/2].
    """
    C, heads, inner = config.channels, config.decoder_heads, config.channels // 2
    cells = config.grid**2
    N, T, _ = k.shape
    offered = _heads(linear(at / "k_proj", k, inner) * _scale(config), heads)
    if is_projected:
        moved, extra = _side_by_side(offered, heads), hidden
    else:
        moved = ops.matmul(offered, _head_weights(at / "q_proj", config)).reshape(N, heads * T, C)
        column = (at / "q_proj").weight("bias", inner).reshape(1, heads, inner // heads, 1)
        extra = ops.matmul(offered, column).reshape(N, 1, heads, T)
        extra = extra if hidden is None else extra + hidden
    scores = ops.matmul(queries, moved.transpose(0, 2, 1)).reshape(N, cells, heads, T)
    scores = scores if extra is None else scores + extra
    weights = ops.softmax(scores).reshape(N, cells, heads * T)
    out = (at / "out_proj").weight("weight", C, inner).transpose(1, 0)
    given = _heads(linear(at / "v_proj", v, inner), heads)
    values = ops.matmul(given, out.reshape(1, heads, inner // heads, C))
    values = values + (at / "out_proj").weight("bias", C) * (1.0 / heads)
    return ops.matmul(weights, values.reshape(N, heads * T, C))


def _attention(
    at: Scope, config: Sam2Config, q: Tensor, k: Tensor, v: Tensor, hidden: Tensor | None
) -> Tensor:
    """Projected attention of the tokens among themselves: [N, T, C] -> [N, T, C]."""
    C, heads = width(q), config.decoder_heads
    q, k, v = (linear(at / f"{n}_proj", x, C) for n, x in zip("qkv", (q, k, v), strict=True))
    y = ops.attention(q, k, v, hidden, heads=heads, scale=(C // heads) ** -0.5)
    return linear(at / "out_proj", y, C)


def _scale(config: Sam2Config) -> float:
    """What scores are multiplied by where image and tokens meet."""
    return float((config.channels // 2 // config.decoder_heads) ** -0.5)


def _heads(x: Tensor, heads: int) -> Tensor:
    """Heads apart: [N, T, h*D] -> [N, h, T, D]."""
    N, T, _ = x.shape
    return x.reshape(N, T, heads, width(x) // heads).transpose(0, 2, 1, 3)


def _head_weights(at: Scope, config: Sam2Config) -> Tensor:
    """The weight of a halving projection, heads apart: [1, h, D, C]."""
    C, heads = config.channels, config.decoder_heads
    return at.weight("weight", C // 2, C).reshape(1, heads, C // 2 // heads, C)


def _side_by_side(x: Tensor, heads: int) -> Tensor:
    """Each head in columns of its own, zero elsewhere: [N, h, T, D] -> [N, h*T, h*D]."""
    N, _, T, D = x.shape
    own = np.eye(heads, dtype=np.float32).reshape(1, heads, 1, heads, 1)
    return (x.reshape(N, heads, T, 1, D) * own).reshape(N, heads * T, heads * width(x))

"""The mask decoder: masks, their quality, whether the object is there (section 4, appendix D).

    tokens   object score, IoU, four mask tokens, then the prompts
    image    two-way transformer, then twice as large, twice, with the trunk's fine features
    mask i   the image times a small network of mask token i

Mask 0 is for clear prompts; masks 1 to 3 are the readings of an ambiguous one.

Shapes: N prompts, T tokens, C channels, E grid, M masks.
"""

from dataclasses import dataclass

from samgraph import ops
from samgraph.graph import Scope, Tensor
from samgraph.sam2.config import Sam2Config
from samgraph.sam2.layers import conv_transpose2d, layer_norm_2d, mlp, to_image, to_tokens
from samgraph.sam2.two_way import two_way

MASKS = 4
OUTPUT_TOKENS = 2 + MASKS
_IOU_WIDTH = 256
STABILITY_DELTA, STABILITY_WANTED = 0.05, 0.98


@dataclass(frozen=True, slots=True)
class Decoded:
    """What the decoder says of each prompt."""

    masks: Tensor  # [N, M, 4E, 4E] logits
    ious: Tensor  # [N, M]
    tokens: Tensor  # [N, M, C] mask tokens
    object_score: Tensor  # [N, 1]


def decode(
    at: Scope,
    config: Sam2Config,
    image: Tensor,
    fine: tuple[Tensor, Tensor],
    sparse: Tensor,
    image_position: Tensor,
    hidden: Tensor | None = None,
) -> Decoded:
    """All four masks: image [N, C, E, E] with its mask prompt added, sparse [N, P, C]."""
    start = output_tokens(at, config)
    N = sparse.shape[0]
    tokens = ops.concat([ops.expand(start, N, OUTPUT_TOKENS, config.channels), sparse], axis=1)
    tokens, seen = two_way(
        at / "transformer", config, tokens, to_tokens(image), image_position, hidden
    )
    mask_tokens = tokens[:, 2:OUTPUT_TOKENS]
    canvas = upscale(at, config, to_image(seen, config.grid, config.grid), fine)
    ious = mlp(at / "iou_prediction_head", tokens[:, 1], (_IOU_WIDTH, _IOU_WIDTH, MASKS))
    score = mlp(at / "pred_obj_score_head", tokens[:, 0], (config.channels, config.channels, 1))
    masks = paint(at, config, mask_tokens, canvas)
    return Decoded(masks, ops.sigmoid(ious), mask_tokens, score)


def output_tokens(at: Scope, config: Sam2Config) -> Tensor:
    """The tokens that answers are read from: [1, 6, C]."""
    names = (("obj_score_token", 1), ("iou_token", 1), ("mask_tokens", MASKS))
    parts = [(at / name).weight("weight", n, config.channels) for name, n in names]
    return ops.concat(parts, axis=0)[None]


def upscale(at: Scope, config: Sam2Config, x: Tensor, fine: tuple[Tensor, Tensor]) -> Tensor:
    """Four times larger, with the finer maps: [N, C, E, E] -> [N, C/8, 4E, 4E]."""
    up, C = at / "output_upscaling", config.channels
    x = conv_transpose2d(up / 0, x, C // 4, 2) + fine[1]
    x = ops.gelu(layer_norm_2d(up / 1, x))
    return ops.gelu(conv_transpose2d(up / 3, x, C // 8, 2) + fine[0])


def paint(at: Scope, config: Sam2Config, mask_tokens: Tensor, canvas: Tensor) -> Tensor:
    """Each mask token's network applied to every pixel: [N, M, 4E, 4E]."""
    C, side = config.channels, config.mask_size
    nets = at / "output_hypernetworks_mlps"
    brushes = [mlp(nets / i, mask_tokens[:, i], (C, C, C // 8)) for i in range(MASKS)]
    N = canvas.shape[0]
    stacked = ops.concat([brush[:, None] for brush in brushes], axis=1)
    masks = ops.matmul(stacked, canvas.reshape(N, C // 8, side * side))
    return masks.reshape(N, MASKS, side, side)


def stability(masks: Tensor) -> Tensor:
    """How little each mask changes with the threshold: [N, M, h, w] -> [N, M]."""
    inner, outer = (
        ops.reduce(ops.where(masks > limit, 1.0, 0.0), (2, 3), how="sum")
        for limit in (STABILITY_DELTA, -STABILITY_DELTA)
    )
    return ops.where(outer > 0.0, inner / ops.maximum(outer, 1.0), 1.0)


def best_place(decoded: Decoded, multimask: Tensor, steadiness: Tensor) -> Tensor:
    """Which of the four masks is the answer: [N].

    With `multimask`, the best by predicted IoU of masks 1 to 3. Without, mask 0, unless it is
    unstable: then also the best of the others.
    """
    others = ops.reduce(decoded.ious[:, 1:], (1,), how="argmax") + 1
    steady = steadiness[:, 0] >= STABILITY_WANTED
    single = ops.where(steady, 0, others)
    return ops.where(multimask, others, single)


def pointer(at: Scope, config: Sam2Config, token: Tensor) -> Tensor:
    """The mask token of the answer as what is remembered of the object: [N, C] -> [N, C]."""
    return mlp(at / "obj_ptr_proj", token, (config.channels,) * 3)

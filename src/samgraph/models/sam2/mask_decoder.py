"""The mask decoder: masks, predicted IoU and object score (section 4, appendix D).

    tokens   object score, IoU, four mask tokens, then the prompts
    image    two-way transformer, then upscaled 2x twice, with the trunk's high-resolution maps
    mask i   the product of the image and an MLP (hypernetwork) of mask token i

Differs from the original: with `mask_stride` 2 the image is upscaled once more, with the trunk's
finest map, and its product with another MLP of the token is added to the mask, enlarged.

Mask 0 is for unambiguous prompts; masks 1 to 3 are alternatives for an ambiguous one.

Shapes: N prompts, T tokens, I cells, C channels, E grid, M masks.
"""

from dataclasses import dataclass

from samgraph import ops
from samgraph.graph import Scope, Tensor
from samgraph.models.sam2.layers import conv_transpose2d, layer_norm_2d, mlp, to_image, width
from samgraph.models.sam2.tracker_config import REFINED_CHANNELS, TrackerConfig
from samgraph.models.sam2.two_way import two_way

MASKS = 4
OUTPUT_TOKENS = 2 + MASKS
_IOU_WIDTH = 256
STABILITY_DELTA, STABILITY_WANTED = 0.05, 0.98


@dataclass(frozen=True, slots=True)
class Decoded:
    """What the decoder predicts for each prompt."""

    masks: Tensor  # [N, M, L, L] logits
    ious: Tensor  # [N, M]
    tokens: Tensor  # [N, M, C] mask tokens
    object_score: Tensor  # [N, 1]


def decode(
    at: Scope,
    config: TrackerConfig,
    image: Tensor,
    fine: tuple[Tensor, ...],
    sparse: Tensor,
    image_position: Tensor,
    mask: Tensor | None = None,
) -> Decoded:
    """All four masks of images with the mask prompt added: image [N, I, C].

    fine [N, C/8, 4E, 4E] and [N, C/4, 2E, 2E], if the trunk has such maps, and the finest
    [N, R, 8E, 8E], if masks are refined; sparse [N, P, C]; `mask` as in `two_way`.
    """
    N = sparse.shape[0]
    start = ops.expand(output_tokens(at, config), N, OUTPUT_TOKENS, config.channels)
    tokens = ops.concat([start, sparse], axis=1)
    image = at.mark("image", image)
    tokens, image = two_way(at / "transformer", config, tokens, image, image_position, mask)
    mask_tokens = tokens[:, 2:OUTPUT_TOKENS]
    upscaled = upscale(at, config, to_image(image, config.grid, config.grid), fine)
    ious = mlp(at / "iou_prediction_head", tokens[:, 1], (_IOU_WIDTH, _IOU_WIDTH, MASKS))
    score = mlp(at / "pred_obj_score_head", tokens[:, 0], (config.channels, config.channels, 1))
    masks = predict_masks(at / "output_hypernetworks_mlps", config, mask_tokens, upscaled)
    if config.mask_stride == 2:
        masks = refine(at, config, masks, mask_tokens, upscaled, fine[2])
    return Decoded(masks, ops.sigmoid(ious), mask_tokens, score)


def output_tokens(at: Scope, config: TrackerConfig) -> Tensor:
    """The learned output tokens: [1, 6, C]."""
    names = (("obj_score_token", 1), ("iou_token", 1), ("mask_tokens", MASKS))
    parts = [(at / name).weight("weight", n, config.channels) for name, n in names]
    return ops.concat(parts, axis=0)[None]


def upscale(at: Scope, config: TrackerConfig, x: Tensor, fine: tuple[Tensor, ...]) -> Tensor:
    """Upscaled 4x, with the high-resolution maps added: [N, C, E, E] -> [N, C/8, 4E, 4E]."""
    up, C = at / "output_upscaling", config.channels
    x = conv_transpose2d(up / 0, x, C // 4, 2)
    x = x + fine[1] if fine else x
    x = ops.gelu(layer_norm_2d(up / 1, x, eps=config.norm_eps))
    x = conv_transpose2d(up / 3, x, C // 8, 2)
    return ops.gelu(x + fine[0] if fine else x)


def predict_masks(
    at: Scope, config: TrackerConfig, mask_tokens: Tensor, upscaled: Tensor
) -> Tensor:
    """The hypernetwork MLP of each mask token times every pixel: [N, c, h, w] -> [N, M, h, w]."""
    C, (N, c, height, columns) = config.channels, upscaled.shape
    widths = (C, C, width(upscaled, 1))
    weights = [mlp(at / i, mask_tokens[:, i], widths) for i in range(MASKS)]
    stacked = ops.concat([weight[:, None] for weight in weights], axis=1)
    masks = ops.matmul(stacked, upscaled.reshape(N, c, height * columns))
    return masks.reshape(N, MASKS, height, columns)


def refine(
    at: Scope,
    config: TrackerConfig,
    masks: Tensor,
    mask_tokens: Tensor,
    upscaled: Tensor,
    finest: Tensor,
) -> Tensor:
    """Masks twice as fine: [N, M, h, w] -> [N, M, 2h, 2w]; finest [N, R, 2h, 2w]."""
    step = at / "refinement"
    x = conv_transpose2d(step / "upscaling", upscaled, REFINED_CHANNELS, 2)
    detail = predict_masks(step / "hypernetworks_mlps", config, mask_tokens, ops.gelu(x + finest))
    side = 2 * width(masks)
    return ops.resize(masks, (side, side), how="bilinear") + detail


def stability(masks: Tensor) -> Tensor:
    """The stability score of each mask: [N, M, h, w] -> [N, M]."""
    inner, outer = (
        ops.reduce(ops.where(masks > limit, 1.0, 0.0), (2, 3), how="sum")
        for limit in (STABILITY_DELTA, -STABILITY_DELTA)
    )
    return ops.where(outer > 0.0, inner / ops.maximum(outer, 1.0), 1.0)


def best_index(decoded: Decoded, multimask: Tensor, stability: Tensor) -> Tensor:
    """The index of the selected mask: [N].

    With `multimask`, the best by predicted IoU of masks 1 to 3. Without, mask 0, unless it is
    unstable: then the best of the others too.
    """
    others = ops.reduce(decoded.ious[:, 1:], (1,), how="argmax") + 1
    is_stable = stability[:, 0] >= STABILITY_WANTED
    return ops.where(multimask, others, ops.where(is_stable, 0, others))


def pointer(at: Scope, config: TrackerConfig, token: Tensor) -> Tensor:
    """The object pointer from a mask token: [N, C] -> [N, C]."""
    return mlp(at / "obj_ptr_proj", token, (config.channels,) * 3)

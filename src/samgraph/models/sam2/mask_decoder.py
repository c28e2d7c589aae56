"""The mask decoder: masks, predicted IoU and object score (section 4, appendix D).

    tokens   object score, IoU, four mask tokens, then the prompts
    image    two-way transformer, then upscaled 2x twice, with the trunk's high-resolution maps
    mask i   the product of the image and an MLP (hypernetwork) of mask token i

Mask 0 is for unambiguous prompts; masks 1 to 3 are alternatives for an ambiguous one.

Shapes: N prompts, T tokens, I cells, C channels, E grid, M masks.
"""

from dataclasses import dataclass

import numpy as np

from samgraph import ops
from samgraph.graph import Scope, Tensor
from samgraph.models.sam2.layers import conv_transpose2d, layer_norm_2d, mlp, to_image, width
from samgraph.models.sam2.tracker_config import TrackerConfig
from samgraph.models.sam2.two_way import two_way

MASKS = 4
OUTPUT_TOKENS = 2 + MASKS
_IOU_WIDTH = 256
STABILITY_DELTA, STABILITY_WANTED = 0.05, 0.98


@dataclass(frozen=True, slots=True)
class Decoded:
    """What the decoder predicts for each prompt."""

    masks: Tensor  # [N, M, 4E, 4E] logits
    ious: Tensor  # [N, M]
    tokens: Tensor  # [N, M, C] mask tokens
    object_score: Tensor  # [N, 1]


def decode(
    at: Scope,
    config: TrackerConfig,
    image: Tensor,
    fine: tuple[Tensor, Tensor] | None,
    sparse: Tensor,
    image_position: Tensor,
    mask: Tensor | None = None,
) -> Decoded:
    """All four masks of images with the mask prompt added: image [N, I, C].

    fine [N, C/8, 4E, 4E] and [N, C/4, 2E, 2E], if the trunk has such maps; sparse [N, P, C];
    `mask` as in `two_way`.
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
    masks = predict_masks(at, config, mask_tokens, upscaled)
    return Decoded(masks, ops.sigmoid(ious), mask_tokens, score)


def output_tokens(at: Scope, config: TrackerConfig) -> Tensor:
    """The learned output tokens: [1, 6, C]."""
    names = (("obj_score_token", 1), ("iou_token", 1), ("mask_tokens", MASKS))
    parts = [(at / name).weight("weight", n, config.channels) for name, n in names]
    return ops.concat(parts, axis=0)[None]


def upscale(
    at: Scope, config: TrackerConfig, x: Tensor, fine: tuple[Tensor, Tensor] | None
) -> Tensor:
    """Upscaled 4x, with the high-resolution maps added: [N, C, E, E] -> [N, C/8, 4E, 4E]."""
    up, C = at / "output_upscaling", config.channels
    x = conv_transpose2d(up / 0, x, C // 4, 2)
    x = x if fine is None else x + fine[1]
    x = ops.gelu(layer_norm_2d(up / 1, x, eps=config.norm_eps))
    x = conv_transpose2d(up / 3, x, C // 8, 2)
    return ops.gelu(x if fine is None else x + fine[0])


def predict_masks(
    at: Scope, config: TrackerConfig, mask_tokens: Tensor, upscaled: Tensor
) -> Tensor:
    """The hypernetwork MLP of each mask token times every pixel: [N, M, 4E, 4E] logits."""
    C, (N, c, height, columns) = config.channels, upscaled.shape
    nets = at / "output_hypernetworks_mlps"
    weights = [mlp(nets / i, mask_tokens[:, i], (C, C, C // 8)) for i in range(MASKS)]
    stacked = ops.concat([weight[:, None] for weight in weights], axis=1)
    masks = ops.matmul(stacked, upscaled.reshape(N, c, height * columns))
    masks = masks.reshape(N, MASKS, height, columns)
    return blurred(masks, config.mask_blur) if config.mask_blur else masks


def blurred(masks: Tensor, size: float) -> Tensor:
    """Masks blurred by a Gaussian of `size` pixels, since cells are upscaled independently.

    Differs from the original: released models have no blur (`mask_blur` 0), the built-in model has.
    """
    side = width(masks)
    steps = np.arange(side)[:, None] - np.arange(side)
    weights = np.exp(-0.5 * np.square(steps / size))
    weights = (weights / weights.sum(1, keepdims=True)).astype(np.float32)
    return ops.matmul(ops.matmul(weights, masks), np.ascontiguousarray(weights.T))


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

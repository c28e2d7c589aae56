"""The mask decoder: masks, their quality, whether the object is there (section 4, appendix D).

    tokens   object score, IoU, four mask tokens, then the prompts
    image    two-way transformer, then twice as large, twice, with the trunk's fine features
    mask i   the image times a small network of mask token i

Mask 0 is for clear prompts; masks 1 to 3 are the readings of an ambiguous one.

The image stays a list of cells while it grows: a cell becomes four, next to each other in the
list, and only the finished masks are put in rows (`to_rows`). The finer maps are listed the same
way (`to_cells`). So nothing large is ever moved, and growing is a linear map.

Shapes: N prompts, T tokens, I cells, C channels, E grid, M masks.
"""

from dataclasses import dataclass

import numpy as np

from samgraph import ops
from samgraph.graph import Scope, Tensor
from samgraph.models.sam2.config import Sam2Config
from samgraph.models.sam2.layers import layer_norm, mlp, width
from samgraph.models.sam2.two_way import Projected, two_way

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
    projected: Projected | None = None,
) -> Decoded:
    """All four masks of images given as cells, the mask prompt added: image [N, I, C].

    Fine [N, 16*I, C/8] and [N, 4*I, C/4], sparse [N, P, C]. With `projected`, there is one image
    for all prompts.
    """
    start = output_tokens(at, config)
    N = sparse.shape[0]
    tokens = ops.concat([ops.expand(start, N, OUTPUT_TOKENS, config.channels), sparse], axis=1)
    tokens, seen = two_way(
        at / "transformer", config, tokens, image, image_position, hidden, projected
    )
    mask_tokens = tokens[:, 2:OUTPUT_TOKENS]
    canvas = upscale(at, config, seen, fine)
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
    """Four times larger, with the finer maps: [N, I, C] -> [N, 16*I, C/8]."""
    up, C = at / "output_upscaling", config.channels
    x = grow(up / 0, x, C // 4) + fine[1]
    x = ops.gelu(layer_norm(up / 1, x, eps=1e-6))
    return ops.gelu(grow(up / 3, x, C // 8) + fine[0])


def grow(at: Scope, x: Tensor, out: int) -> Tensor:
    """A transposed convolution that makes each cell two by two: [N, I, C] -> [N, 4*I, out]."""
    N, cells, _ = x.shape
    weight = at.weight("weight", width(x), out, 2, 2).transpose(2, 3, 1, 0)
    bias = ops.concat([at.weight("bias", out)] * 4, axis=0)
    return ops.linear(x, weight.reshape(4 * out, width(x)), bias).reshape(N, cells * 4, out)


def paint(at: Scope, config: Sam2Config, mask_tokens: Tensor, canvas: Tensor) -> Tensor:
    """Each mask token's network applied to every pixel: [N, M, 4E, 4E]."""
    C = config.channels
    nets = at / "output_hypernetworks_mlps"
    brushes = [mlp(nets / i, mask_tokens[:, i], (C, C, C // 8)) for i in range(MASKS)]
    stacked = ops.concat([brush[:, None] for brush in brushes], axis=1)
    masks = to_rows(config, ops.matmul(stacked, canvas.transpose(0, 2, 1)))
    return blurred(masks, config.mask_blur) if config.mask_blur else masks


def blurred(masks: Tensor, size: float) -> Tensor:
    """Masks through a Gaussian: a cell grows without a look at its neighbours, and that shows."""
    side = width(masks)
    steps = np.arange(side)[:, None] - np.arange(side)
    weights = np.exp(-0.5 * np.square(steps / size))
    weights = (weights / weights.sum(1, keepdims=True)).astype(np.float32)
    return ops.matmul(ops.matmul(weights, masks), np.ascontiguousarray(weights.T))


def fine_cells(config: Sam2Config, fine_0: Tensor, fine_1: Tensor) -> tuple[Tensor, Tensor]:
    """The trunk's finer maps as `decode` takes them."""
    return to_cells(config, fine_0, 2), to_cells(config, fine_1, 1)


def to_cells(config: Sam2Config, x: Tensor, times: int) -> Tensor:
    """A map that is 2**times finer than the grid, in the order in which cells grow.

    [N, c, E*2**times, E*2**times] -> [N, I*4**times, c]: the grid's cells row by row, the four
    parts of a cell together, the four parts of a part together.
    """
    N, c, E = x.shape[0], x.shape[1], config.grid
    steps, parts = times + 1, (E, *(2,) * times)
    order = [axis for step in range(steps) for axis in (1 + step, 1 + steps + step)]
    apart = x.transpose(0, 2, 3, 1).reshape(N, *parts, *parts, c).transpose(0, *order, -1)
    return apart.reshape(N, E * E * 4**times, c)


def to_rows(config: Sam2Config, x: Tensor) -> Tensor:
    """Masks whose cells have grown twice, row by row: [N, M, 16*I] -> [N, M, 4E, 4E]."""
    N, masks, E, side = x.shape[0], x.shape[1], config.grid, config.mask_size
    apart = x.reshape(N, masks, E, E, 2, 2, 2, 2).transpose(0, 1, 2, 4, 6, 3, 5, 7)
    return apart.reshape(N, masks, side, side)


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

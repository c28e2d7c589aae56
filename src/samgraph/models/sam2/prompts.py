"""The prompt encoder: points, boxes and masks as embeddings (section 4, "prompt encoder").

    a point   Fourier features of its position + the embedding of its label
    a box     two points, labels 2 (top left) and 3 (bottom right)
    a mask    three convolutions, added to the image; `no_mask_embed` without a mask

Labels: 1 positive, 0 negative, 2 and 3 the corners of a box, -1 not a point: an embedding without
position. One such point is appended to the list.

Differs from the original: label -2 is padding, which is masked in attention (`padding_mask`), so
that lists of points of different lengths run in one batch. After padding alone the appended point
is masked too: that is the original's prompt of a mask alone.

Shapes: N prompts, P points, C channels, S image size, E grid.
"""

import math

import numpy as np

from samgraph import ops
from samgraph.graph import Scope, Tensor
from samgraph.models.family import ABSENT
from samgraph.models.sam2.layers import conv2d, layer_norm_2d
from samgraph.models.sam2.tracker_config import TrackerConfig

_KINDS = 4
_MASKED_SCORE = -1e9


def points(at: Scope, config: TrackerConfig, xy: Tensor, labels: Tensor) -> Tensor:
    """Points with their padding: xy [N, P, 2] in pixels of the input, labels [N, P] -> [N, P+1, C].

    Half a pixel is added to `xy`, to shift to the pixel's centre.
    """
    N = xy.shape[0]
    embedded = embed_points(at, config, xy, labels)
    end = at / "not_a_point_embed"
    padding = ops.expand(end.weight("weight", 1, config.channels)[None], N, 1, config.channels)
    return ops.concat([embedded, padding], axis=1)


def embed_points(at: Scope, config: TrackerConfig, xy: Tensor, labels: Tensor) -> Tensor:
    """Points without padding: [N, P, C]."""
    position = fourier(at / "pe_layer", config, (xy + 0.5) / config.image_size)
    kind = labels[..., None]
    no_point = (at / "not_a_point_embed").weight("weight", 1, config.channels)
    result = ops.where(kind < 0, no_point, position)
    for i in range(_KINDS):
        embedding = (at / "point_embeddings" / i).weight("weight", 1, config.channels)
        result = result + ops.where(kind == i, embedding, 0.0)
    return result


def padding_mask(labels: Tensor, tokens_before: int) -> Tensor:
    """The additive attention mask of padding: [N, 1, 1, T]."""
    N, P = labels.shape
    score = ops.where(labels == ABSENT, _MASKED_SCORE, 0.0)
    end = ops.reduce(score, (1,), how="max", keep=True)
    around = ops.pad(ops.concat([score, end], axis=1), (0, tokens_before), (0, 0))
    return around.reshape(N, 1, 1, P + (tokens_before + 1))


def fourier(at: Scope, config: TrackerConfig, xy: Tensor) -> Tensor:
    """Random Fourier features of positions in 0..1: [..., 2] -> [..., C]."""
    half = config.channels // 2
    frequencies = at.weight("positional_encoding_gaussian_matrix", 2, half)
    angles = ops.matmul(xy * 2.0 - 1.0, frequencies) * (2 * math.pi)
    return ops.concat([ops.sin(angles), ops.cos(angles)], axis=-1)


def dense_positions(at: Scope, config: TrackerConfig) -> Tensor:
    """The same features at every cell of the grid: [1, E*E, C]."""
    centres = (np.arange(config.grid, dtype=np.float32) + 0.5) / config.grid
    columns, rows = np.meshgrid(centres, centres)
    xy = np.stack([columns, rows], -1).reshape(1, -1, 2)
    return fourier(at / "pe_layer", config, at.builder.constant(xy))


def mask(at: Scope, config: TrackerConfig, logits: Tensor) -> Tensor:
    """The dense embedding of a low-resolution mask: [N, 1, L, L] -> [N, C, E, E].

    Differs from the original: masks of `mask_stride` 2 are averaged over 2 x 2 pixels first.
    """
    down = at / "mask_downscaling"
    x, fine, side = logits, config.prompt_mask_channels, 4 * config.grid
    if config.mask_size != side:
        x = ops.resize(x, (side, side), how="bilinear")
    for step, out in ((0, fine // 4), (3, fine)):
        x = conv2d(down / step, x, out, 2, stride=2)
        x = ops.gelu(layer_norm_2d(down / (step + 1), x, eps=config.norm_eps))
    return conv2d(down / 6, x, config.channels, 1)


def enlarge(config: TrackerConfig, logits: Tensor) -> Tensor:
    """A mask of stride 4 at the size of masks, such that `mask` averages it back: [N, 1, L, L]."""
    side = config.mask_size
    return logits if side == 4 * config.grid else ops.resize(logits, (side, side), how="nearest")


def no_mask(at: Scope, config: TrackerConfig) -> Tensor:
    """The dense embedding without a mask: [1, 1, C]."""
    weight = (at / "no_mask_embed").weight("weight", 1, config.channels)
    return weight[None]

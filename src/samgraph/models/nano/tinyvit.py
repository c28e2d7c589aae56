"""TinyViT (Wu et al. 2022), the trunk of MobileSAM and of samgraph-nano.

    stem      two 3x3 convolutions of stride 2, a GELU between
    stage 0   blocks of 1x1, depthwise 3x3 and 1x1 convolutions
    stage i   attention in windows, a depthwise 3x3 convolution, an MLP; after the others 1x1,
              depthwise 3x3 and 1x1 convolutions that change the width, of stride 2 but the last

Batch norms are folded into the convolutions before them. Attention scores have a learned bias for
each absolute offset (rows, columns). Windows that do not divide the map are padded with zeros
before the norm, as in the original; padded tokens are attended to.

Shapes: B images, C channels, H W map, T tokens of a window.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from samgraph import ops
from samgraph.graph import Array, Scope, Tensor
from samgraph.models.sam2.layers import conv2d, layer_norm, linear, width
from samgraph.models.sam2.windows import partition, unpartition

_EPS = 1e-5
_RATIO = 4  # of hidden channels to channels, in all blocks


@dataclass(frozen=True, slots=True)
class TinyVit:
    """The dimensions of a trunk, a number per stage."""

    channels: tuple[int, ...]
    blocks: tuple[int, ...]
    heads: tuple[int, ...]
    windows: tuple[int, ...]


class Maps(NamedTuple):
    """What a trunk sees, at strides 2, 4, 8 and 16: [B, C, H, W] each."""

    stem: Tensor
    fine: Tensor
    middle: Tensor
    last: Tensor


def tinyvit(at: Scope, shape: TinyVit, image: Tensor) -> Maps:
    """The maps of images [B, 3, S, S]: after half of the stem, stages 0 and 1, and the last."""
    seq = at / "patch_embed" / "seq"
    stem = ops.gelu(conv2d(seq / 0, image, shape.channels[0] // 2, 3, stride=2, padding=1))
    x = conv2d(seq / 2, stem, shape.channels[0], 3, stride=2, padding=1)
    maps = []
    for stage, count in enumerate(shape.blocks):
        layer = at / "layers" / stage
        for i in range(count):
            block = layer / "blocks" / i
            if stage == 0:
                x = convolutions(block, x)
            else:
                x = attend(block, x, shape.heads[stage], shape.windows[stage])
        maps.append(x)
        if stage < len(shape.blocks) - 1:
            stride = 1 if stage == 2 else 2
            x = widen(layer / "downsample", x, shape.channels[stage + 1], stride)
    return Maps(stem, maps[0], maps[1], maps[-1])


def convolutions(at: Scope, x: Tensor) -> Tensor:
    """A block of the first stage: [B, C, H, W] -> [B, C, H, W]."""
    C = width(x, 1)
    y = ops.gelu(conv2d(at / "conv1", x, _RATIO * C, 1))
    y = ops.gelu(depthwise(at / "conv2", y))
    return ops.gelu(x + conv2d(at / "conv3", y, C, 1))


def attend(at: Scope, x: Tensor, heads: int, window: int) -> Tensor:
    """A block of the other stages: [B, C, H, W] -> [B, C, H, W]."""
    C = width(x, 1)
    x = x + windowed(at / "attn", x, heads, window)
    x = depthwise(at / "local_conv", x)
    y = layer_norm(at / "mlp" / "norm", x.transpose(0, 2, 3, 1), eps=_EPS)
    y = linear(at / "mlp" / "fc2", ops.gelu(linear(at / "mlp" / "fc1", y, _RATIO * C)), C)
    return x + y.transpose(0, 3, 1, 2)


def windowed(at: Scope, x: Tensor, heads: int, window: int) -> Tensor:
    """Attention inside windows: [B, C, H, W] -> [B, C, H, W]."""
    B, C, H, W = x.shape[0], width(x, 1), width(x, 2), width(x, 3)
    tokens = window * window
    cut = layer_norm(at / "norm", partition(x.transpose(0, 2, 3, 1), window, window), eps=_EPS)
    each = linear(at / "qkv", cut, 3 * C).reshape(-1, tokens, heads, 3 * C // heads)
    share = C // heads
    q, k, v = (each[..., i * share : (i + 1) * share].reshape(-1, tokens, C) for i in range(3))
    bias = ops.gather(at.weight("attention_biases", heads, tokens), offsets(window), axis=1)
    y = linear(at / "proj", ops.attention(q, k, v, bias[None], heads=heads, scale=share**-0.5), C)
    return unpartition(y, window, window, B, H, W).transpose(0, 3, 1, 2)


def offsets(window: int) -> Array:
    """The row of the table of biases for each pair of tokens of a window: [T, T]."""
    rows, columns = np.divmod(np.arange(window * window), window)
    found: Array = np.abs(rows[:, None] - rows) * window + np.abs(columns[:, None] - columns)
    return found


def widen(at: Scope, x: Tensor, out: int, stride: int) -> Tensor:
    """Between two stages: [B, C, H, W] -> [B, out, H / stride, W / stride]."""
    y = ops.gelu(conv2d(at / "conv1", x, out, 1))
    return conv2d(at / "conv3", ops.gelu(depthwise(at / "conv2", y, stride)), out, 1)


def depthwise(at: Scope, x: Tensor, stride: int = 1) -> Tensor:
    """A 3x3 convolution of each channel by itself."""
    return conv2d(at, x, width(x, 1), 3, stride=stride, padding=1, groups=width(x, 1))

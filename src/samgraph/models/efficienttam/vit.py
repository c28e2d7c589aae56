"""The image encoder of EfficientTAM: a plain ViT, and a neck of one level.

    image -> 16 x 16 patches + position -> blocks -> 1x1 conv, norm, 3x3 conv, norm

A block is attention, in windows or global, then an MLP, both with a residual connection. Windows
that do not divide the grid are padded with zeros after the norm; padded tokens are attended to.
The position embedding has a row for a class token, which is not used, and is resized to the grid.

Shapes: B images, E grid, C channels of the trunk.
"""

from samgraph import ops
from samgraph.graph import Scope, Tensor
from samgraph.models.efficienttam.config import EfficientTamConfig
from samgraph.models.sam2 import hiera
from samgraph.models.sam2.layers import conv2d, layer_norm, layer_norm_2d, mlp, width
from samgraph.models.sam2.windows import partition, unpartition


def vit(at: Scope, config: EfficientTamConfig, image: Tensor) -> Tensor:
    """The map after all blocks, without a norm: [B, 3, S, S] -> [B, E, E, C]."""
    x = patches(at / "patch_embed", config, image) + positions(at, config)
    for i in range(config.blocks):
        x = at.mark(f"blocks.{i}", block(at / "blocks" / i, config, x, i in config.global_blocks))
    return x


def patches(at: Scope, config: EfficientTamConfig, image: Tensor) -> Tensor:
    """A convolution of patches that do not overlap: [B, 3, S, S] -> [B, E, E, C]."""
    x = conv2d(at / "proj", image, config.embed_dim, config.patch, stride=config.patch)
    return x.transpose(0, 2, 3, 1)


def positions(at: Scope, config: EfficientTamConfig) -> Tensor:
    """The position embedding without its class token, bicubically resized: [1, E, E, C]."""
    side, C = config.position_side, config.embed_dim
    cells = at.weight("pos_embed", 1, 1 + side**2, C)[:, 1:]
    image = cells.reshape(1, side, side, C).transpose(0, 3, 1, 2)
    resized = ops.resize(image, (config.grid, config.grid), how="bicubic")
    return resized.transpose(0, 2, 3, 1)


def block(at: Scope, config: EfficientTamConfig, x: Tensor, is_global: bool) -> Tensor:
    """One block: [B, E, E, C] -> [B, E, E, C]."""
    B, E, C = x.shape[0], config.grid, width(x)
    side = E if is_global else config.window
    windows = partition(layer_norm(at / "norm1", x, eps=config.norm_eps), side, side)
    y = hiera.attention(at / "attn", windows, C, config.heads, pools=False)
    x = x + unpartition(y, side, side, B, E, E)
    normal = layer_norm(at / "norm2", x, eps=config.norm_eps)
    return x + mlp(at / "mlp", normal, (C * config.mlp_ratio, C), gelu=True)


def neck(at: Scope, config: EfficientTamConfig, x: Tensor) -> Tensor:
    """The image embedding: [B, C', E, E] -> [B, C, E, E], normalised."""
    level = at / "convs" / 0
    x = conv2d(level / "conv_1x1", x, config.channels, 1, bias=False)
    x = layer_norm_2d(level / "norm_0", x, eps=config.norm_eps)
    x = conv2d(level / "conv_3x3", x, config.channels, 3, padding=1, bias=False)
    return layer_norm_2d(level / "norm_1", x, eps=config.norm_eps)

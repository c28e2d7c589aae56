"""The memory encoder: what a frame and its mask are remembered as (section 4, "memory encoder").

    mask   sigmoid (or 0/1 on prompted frames) * 20 - 10, four strided convolutions
    frame  a 1x1 convolution
    both   added, two ConvNeXt blocks, down to 64 channels

With SAM 2.1, an embedding is added where the object is occluded or absent.

Shapes: N objects, C channels, E grid, S image size.
"""

from samgraph import ops
from samgraph.graph import Scope, Tensor
from samgraph.models.sam2.config import Sam2Config
from samgraph.models.sam2.layers import conv2d, layer_norm_2d, linear

MASK_SCALE, MASK_SHIFT = 20.0, -10.0
STEEPNESS = 2.0**80
_STEPS = 4


def memory_encoder(
    at: Scope, config: Sam2Config, image: Tensor, mask: Tensor, hidden: Tensor
) -> Tensor:
    """image [N or 1, C, E, E], mask [N, 1, S, S] ready for the convolutions -> [N, 64, E, E].

    `hidden` [N, 1, 1, 1] is 1 where the object is occluded or absent.
    """
    encoder = at / "memory_encoder"
    x = conv2d(encoder / "pix_feat_proj", image, config.channels, 1)
    x = x + shrink_mask(encoder / "mask_downsampler" / "encoder", config, mask)
    for i in range(config.fuser_layers):
        x = fuse(encoder / "fuser" / "layers" / i, config, x)
    memory = conv2d(encoder / "out_proj", x, config.memory_channels, 1)
    if config.hidden_object_embedding:
        embedding = at.weight("no_obj_embed_spatial", 1, config.memory_channels)
        memory = memory + hidden * embedding.reshape(1, config.memory_channels, 1, 1)
    return memory


def steepen(logits: Tensor, binary: Tensor) -> Tensor:
    """Mask logits for `mask_for_memory`; `binary` [N, 1, 1, 1] says where these are hardened.

    Hardening (1 above zero, else 0) is a sigmoid that is steep beyond any float, shifted so that
    zero falls on the lower side. It is done before a mask is enlarged, where it costs least: a
    power of two changes no digit, so that every sign is the same after.

    Differs from the original, and is not exact: it hardens the enlarged mask, where logits that
    cancel to exactly zero between two pixels count as zero; here they count half.
    """
    return logits * ops.where(binary, STEEPNESS, 1.0) + ops.where(binary, -1e3, 0.0)


def mask_for_memory(logits: Tensor) -> Tensor:
    """Mask logits as the encoder wants them, from -10 to 10."""
    return ops.sigmoid(logits) * MASK_SCALE + MASK_SHIFT


def shrink_mask(at: Scope, config: Sam2Config, mask: Tensor) -> Tensor:
    """Four times half the size and four times the channels: [N, 1, S, S] -> [N, C, E, E]."""
    x = mask
    for step in range(_STEPS):
        x = conv2d(at / (3 * step), x, 4 ** (step + 1), 3, stride=2, padding=1)
        x = ops.gelu(layer_norm_2d(at / (3 * step + 1), x, eps=config.norm_eps))
    return conv2d(at / (3 * _STEPS), x, config.channels, 1)


def fuse(at: Scope, config: Sam2Config, x: Tensor) -> Tensor:
    """A ConvNeXt block: a depthwise 7 x 7 convolution, a norm, a wide MLP, scaled."""
    C = config.channels
    weight, bias = (at / "dwconv").weight("weight", C, 1, 7, 7), (at / "dwconv").weight("bias", C)
    y = ops.conv2d(x, weight, bias, padding=(3, 3), groups=C)
    y = layer_norm_2d(at / "norm", y, eps=config.norm_eps).transpose(0, 2, 3, 1)
    y = linear(at / "pwconv2", ops.gelu(linear(at / "pwconv1", y, 4 * C)), C)
    return x + (y * at.weight("gamma", C)).transpose(0, 3, 1, 2)

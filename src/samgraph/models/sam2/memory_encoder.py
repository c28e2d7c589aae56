"""The memory encoder: the memory of a frame and its mask (section 4, "memory encoder").

    mask   sigmoid (or 0/1 on prompted frames) * 20 - 10, four strided convolutions
    frame  a 1x1 convolution
    both   added, two ConvNeXt blocks, down to 64 channels

With SAM 2.1, an embedding is added where the object is occluded or absent.

Shapes: N objects, C channels, E grid, S image size.
"""

from samgraph import ops
from samgraph.graph import Scope, Tensor
from samgraph.models.sam2.layers import conv2d, layer_norm_2d, linear
from samgraph.models.sam2.tracker_config import TrackerConfig

MASK_SCALE, MASK_SHIFT = 20.0, -10.0
STEEPNESS = 2.0**80
_STEPS = 4


def memory_encoder(
    at: Scope, config: TrackerConfig, image: Tensor, mask: Tensor, absent: Tensor
) -> Tensor:
    """image [N or 1, C, E, E], mask [N, 1, S, S] ready for the convolutions -> [N, 64, E, E].

    `absent` [N, 1, 1, 1] is 1 where the object is occluded or absent.
    """
    encoder = at / "memory_encoder"
    x = conv2d(encoder / "pix_feat_proj", image, config.channels, 1)
    x = x + shrink_mask(encoder / "mask_downsampler" / "encoder", config, mask)
    for i in range(config.fuser_layers):
        x = fuse(encoder / "fuser" / "layers" / i, config, x)
    memory = conv2d(encoder / "out_proj", x, config.memory_channels, 1)
    if config.hidden_object_embedding:
        embedding = at.weight("no_obj_embed_spatial", 1, config.memory_channels)
        memory = memory + absent * embedding.reshape(1, config.memory_channels, 1, 1)
    return memory


def steepen(logits: Tensor, binary: Tensor) -> Tensor:
    """Mask logits for `mask_for_memory`, hardened where `binary` [N, 1, 1, 1] is 1.

    Hardening (1 above zero, else 0) is a sigmoid with a slope beyond any float, shifted so that
    zero maps to 0. It is applied before upscaling, where it costs least: the slope is a power of
    two, so that products are exact and signs are unchanged.

    Differs from the original, and is not exact: the original hardens the upscaled mask, where
    logits that cancel to exactly zero between two pixels give 0; here they give one half.
    """
    return logits * ops.where(binary, STEEPNESS, 1.0) + ops.where(binary, -1e3, 0.0)


def mask_for_memory(logits: Tensor) -> Tensor:
    """Mask logits to the encoder's input range, -10 to 10."""
    return ops.sigmoid(logits) * MASK_SCALE + MASK_SHIFT


def shrink_mask(at: Scope, config: TrackerConfig, mask: Tensor) -> Tensor:
    """Four convolutions of stride 2, then 1 x 1: [N, 1, S, S] -> [N, C, E, E]."""
    x = mask
    for step in range(_STEPS):
        x = conv2d(at / (3 * step), x, 4 ** (step + 1), 3, stride=2, padding=1)
        x = ops.gelu(layer_norm_2d(at / (3 * step + 1), x, eps=config.norm_eps))
    return conv2d(at / (3 * _STEPS), x, config.channels, 1)


def fuse(at: Scope, config: TrackerConfig, x: Tensor) -> Tensor:
    """A ConvNeXt block: a depthwise 7 x 7 convolution, a norm, a wide MLP, scaled."""
    C = config.channels
    weight, bias = (at / "dwconv").weight("weight", C, 1, 7, 7), (at / "dwconv").weight("bias", C)
    y = ops.conv2d(x, weight, bias, padding=(3, 3), groups=C)
    y = layer_norm_2d(at / "norm", y, eps=config.norm_eps).transpose(0, 2, 3, 1)
    y = linear(at / "pwconv2", ops.gelu(linear(at / "pwconv1", y, 4 * C)), C)
    return x + (y * at.weight("gamma", C)).transpose(0, 3, 1, 2)

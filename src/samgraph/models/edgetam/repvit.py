"""RepViT, the trunk of EdgeTAM (Wang et al. 2023, "RepViT-M1").

    image -> stem, stride 4 -> four stages, each but the first halving the grid

    block       token mixer, squeeze-and-excite in every second block, then x + channel mixer(x)
    token mixer depthwise 3x3 + depthwise 1x1 + x, each convolution with a batch norm
    downsample  a block, depthwise 3x3 of stride 2, 1x1 to the new width, then x + mlp(x)

Batch norms and the three branches of the token mixer are as trained: `fold_batch_norm` and
`merge_depthwise` make one convolution of each.

Shapes: B images, H W grid, C channels.
"""

from samgraph import ops
from samgraph.graph import Scope, Tensor
from samgraph.models.edgetam.config import EdgeTamConfig
from samgraph.models.sam2.layers import conv2d, width

_GATE_STEP = 8  # the width of a gate is a multiple of it


def repvit(at: Scope, config: EdgeTamConfig, image: Tensor) -> list[Tensor]:
    """The last map of every stage, finest first: [B, 3, S, S] -> [B, C, H, W] each."""
    x, maps = stem(at / "stem", config, image), []
    for i, count in enumerate(config.stages):
        stage = at / f"stages_{i}"
        if i > 0:
            x = downsample(stage / "downsample", config, x, config.stage_channels[i])
        for j in range(count):
            x = block(stage / "blocks" / j, config, x, has_gate=j % 2 == 0)
        maps.append(at.mark(f"stages.{i}", x))
    return maps


def stem(at: Scope, config: EdgeTamConfig, image: Tensor) -> Tensor:
    """Two 3 x 3 convolutions of stride 2: [B, 3, S, S] -> [B, C, S/4, S/4]."""
    C = config.stage_channels[0]
    x = ops.gelu(conv_norm(at / "conv1", config, image, C // 2, 3, stride=2))
    return conv_norm(at / "conv2", config, x, C, 3, stride=2)


def downsample(at: Scope, config: EdgeTamConfig, x: Tensor, out: int) -> Tensor:
    """The step to the next stage: [B, C, H, W] -> [B, out, H/2, W/2]."""
    C = width(x, 1)
    x = block(at / "pre_block", config, x, has_gate=False)
    x = conv_norm(at / "spatial_downsample", config, x, C, 3, stride=2, groups=C)
    x = conv_norm(at / "channel_downsample", config, x, out, 1)
    return x + channel_mixer(at / "ffn", config, x)


def block(at: Scope, config: EdgeTamConfig, x: Tensor, *, has_gate: bool) -> Tensor:
    """One block: [B, C, H, W] -> [B, C, H, W]."""
    x = token_mixer(at / "token_mixer", config, x)
    x = squeeze_excite(at / "se", x) if has_gate else x
    return x + channel_mixer(at / "channel_mixer", config, x)


def token_mixer(at: Scope, config: EdgeTamConfig, x: Tensor) -> Tensor:
    """Two depthwise convolutions and the identity, summed; nothing follows the sum."""
    C = width(x, 1)
    wide = conv_norm(at / "conv", config, x, C, 3, groups=C)
    return wide + conv_norm(at / "conv1", config, x, C, 1, groups=C) + x


def squeeze_excite(at: Scope, x: Tensor) -> Tensor:
    """Channels scaled by a gate of the mean over the grid."""
    C = width(x, 1)
    mean = ops.reduce(x, (2, 3), how="mean", keep=True)
    hidden = ops.relu(conv2d(at / "fc1", mean, gate_width(C), 1))
    return x * ops.sigmoid(conv2d(at / "fc2", hidden, C, 1))


def gate_width(channels: int) -> int:
    """The inner width of squeeze-and-excite: a quarter, rounded to a multiple of eight."""
    quarter = channels / 4
    rounded = max(_GATE_STEP, int(quarter + _GATE_STEP / 2) // _GATE_STEP * _GATE_STEP)
    return rounded if rounded >= 0.9 * quarter else rounded + _GATE_STEP


def channel_mixer(at: Scope, config: EdgeTamConfig, x: Tensor) -> Tensor:
    """Two 1 x 1 convolutions with a GELU between."""
    C = width(x, 1)
    hidden = ops.gelu(conv_norm(at / "conv1", config, x, 2 * C, 1))
    return conv_norm(at / "conv2", config, hidden, C, 1)


def conv_norm(
    at: Scope,
    config: EdgeTamConfig,
    x: Tensor,
    out: int,
    kernel: int,
    *,
    stride: int = 1,
    groups: int = 1,
) -> Tensor:
    """A convolution without a bias, and a batch norm: [B, C, H, W] -> [B, out, H', W']."""
    steps = {"stride": stride, "padding": kernel // 2, "groups": groups}
    y = conv2d(at / "c", x, out, kernel, **steps, bias=False)
    return batch_norm(at / "bn", y, eps=config.batch_norm_eps)


def batch_norm(at: Scope, x: Tensor, *, eps: float) -> Tensor:
    """Normalisation by the statistics of training, a scale and a shift per channel."""
    C = width(x, 1)
    scale, shift = at.weight("weight", C), at.weight("bias", C)
    mean, variance = at.weight("running_mean", C), at.weight("running_var", C)
    scale = scale / ops.sqrt(variance + eps)
    return x * scale.reshape(C, 1, 1) + (shift - mean * scale).reshape(C, 1, 1)

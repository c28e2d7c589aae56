"""The neck: a feature pyramid over the trunk's stages (section 4, "image encoder").

    level 3 (stride 32)   1x1 conv
    level 2 (stride 16)   1x1 conv + level 3, upsampled      the image embedding
    level 1, 0            1x1 conv                           high-resolution features of the decoder

Level 3 is dropped once it is added to level 2. Shapes: B images, C channels.
"""

from samgraph import ops
from samgraph.graph import Scope, Tensor
from samgraph.models.sam2.config import Sam2Config
from samgraph.models.sam2.layers import conv2d


def neck(at: Scope, config: Sam2Config, maps: list[Tensor]) -> list[Tensor]:
    """[B, H, W, C'] of the trunk, finest first -> [B, C, H, W], the same order."""
    last = len(maps) - 1
    levels = []
    for level, x in enumerate(maps):  # the checkpoint numbers its convolutions coarsest first
        lateral = x.transpose(0, 3, 1, 2)
        levels.append(conv2d(at / "convs" / (last - level) / "conv", lateral, config.channels, 1))
    side = config.grid
    coarse = ops.resize(levels[last], (side, side), how="nearest")
    levels[last - 1] = levels[last - 1] + coarse
    return levels

"""The neck: a feature pyramid over the trunk's stages (section 4, "image encoder").

    level 3 (stride 32)   1x1 conv
    level 2 (stride 16)   1x1 conv + level 3, upsampled      the image embedding
    level 1, 0            1x1 conv                           high-resolution features of the decoder

Level 3 is dropped once it is added to level 2. Shapes: B images, C channels.
"""

from samgraph import ops
from samgraph.graph import Scope, Tensor
from samgraph.models.sam2.layers import conv2d
from samgraph.models.sam2.tracker_config import TrackerConfig


def neck(at: Scope, config: TrackerConfig, maps: list[Tensor]) -> list[Tensor]:
    """[B, C', H, W] of the trunk, finest first -> [B, C, H, W], the same order."""
    last = len(maps) - 1
    levels = []
    for level, x in enumerate(maps):  # the checkpoint numbers its convolutions coarsest first
        levels.append(conv2d(at / "convs" / (last - level) / "conv", x, config.channels, 1))
    side = config.grid
    coarse = ops.resize(levels[last], (side, side), how="nearest")
    levels[last - 1] = levels[last - 1] + coarse
    return levels

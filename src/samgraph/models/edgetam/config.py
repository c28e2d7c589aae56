"""The config of EdgeTAM."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from samgraph.graph import Array
from samgraph.models.sam2.config_rules import MOST_BLOCKS, Range, field_problems, map_problems
from samgraph.models.sam2.positions import token_positions
from samgraph.models.sam2.tracker_config import (
    TrackerConfig,
    config_from_json,
    find_config_of,
    tracker_problems,
)


@dataclass(frozen=True, slots=True)
class EdgeTamConfig(TrackerConfig):
    """Every dimension of an EdgeTAM model; the defaults are the released one."""

    name: str = "edgetam"

    # RepViT-M1, the trunk
    stage_channels: tuple[int, ...] = (48, 96, 192, 384)
    stages: tuple[int, ...] = (2, 2, 14, 2)
    batch_norm_eps: float = 1e-5

    # the spatial perceiver, which compresses the memory of a frame
    latents: int = 256
    latent_side: int = 16  # of the grid of windowed latents
    perceiver_layers: int = 2
    perceiver_ratio: int = 4

    memory_layers: int = 2

    # as SAM 2.0
    hidden_object_embedding: bool = False
    pointer_time: bool = False
    project_pointer_time: bool = False
    signed_pointer_time: bool = False

    def problems(self) -> Iterator[str]:
        """What is wrong with it, one sentence each."""
        yield from field_problems(self, self.ranges())
        if len(self.stages) != 4 or len(self.stage_channels) != 4:
            yield "needs four stages with their channels"
        if sum(self.stages) > MOST_BLOCKS:
            yield f"{sum(self.stages)} blocks are more than {MOST_BLOCKS}"
        if self.stage_channels[0] % 2:
            yield "the stem has half the channels of the first stage, which are odd"
        yield from tracker_problems(self)
        if self.grid % self.latent_side:
            step = 16 * self.latent_side
            yield f"image size {self.image_size} is not a multiple of {step}"
        if self.memory_pool > 1 and self.latent_side % 2:
            yield f"a grid of {self.latent_side} windowed latents a side cannot be pooled 2 x 2"
        yield from map_problems(self)

    @classmethod
    def ranges(cls) -> Mapping[str, Range]:
        """The ranges of the numbers of trunk and perceiver."""
        return {
            "stage_channels": (2, 2048),
            "batch_norm_eps": (0, 1),
            "latents": (1, 4096),
            "latent_side": (1, 64),
            "perceiver_layers": (1, 16),
            "perceiver_ratio": (1, 16),
        }

    @property
    def memory_tokens(self) -> int:
        """Tokens of the mask memory of one frame: global latents, then those of windows."""
        return self.latents + self.latent_side**2

    def memory_positions(self) -> Array:
        """None for global latents, the sines of their own grid for those of windows: [T, C]."""
        C = self.memory_channels
        none = np.zeros((self.latents, C), np.float32)
        return np.concatenate([none, token_positions(C, self.latent_side)])

    def smallest(self) -> "EdgeTamConfig":
        """The same weights for the smallest input, so that tracing makes no large constants."""
        return self.at_size(min(self.image_size, max(64, 16 * self.latent_side)))


EDGETAM = EdgeTamConfig()
CONFIGS = {EDGETAM.name: EDGETAM}


def find_config(wanted: "str | EdgeTamConfig | Mapping[str, Any]") -> EdgeTamConfig:
    """A config from its name, from itself, or from a mapping of its fields."""
    return find_config_of(EdgeTamConfig, CONFIGS, wanted)


def from_json(text: str) -> EdgeTamConfig:
    """Read what `to_json` wrote."""
    return config_from_json(EdgeTamConfig, text)

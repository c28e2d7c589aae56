"""The config of samgraph-nano."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from samgraph.models.nano.tinyvit import TinyVit
from samgraph.models.sam2.config_rules import MOST_BLOCKS, Range, field_problems, map_problems
from samgraph.models.sam2.tracker_config import (
    TrackerConfig,
    config_from_json,
    find_config_of,
    tracker_problems,
)

STAGES = 4


@dataclass(frozen=True, slots=True)
class NanoConfig(TrackerConfig):
    """Every dimension of a samgraph-nano. The defaults are the built-in model."""

    mask_stride: ClassVar[int] = 2

    name: str = "samgraph-nano"
    image_size: int = 512

    # TinyViT, the image encoder's trunk
    stage_channels: tuple[int, ...] = (64, 128, 160, 320)
    stages: tuple[int, ...] = (2, 2, 6, 2)
    stage_heads: tuple[int, ...] = (2, 4, 5, 10)
    windows: tuple[int, ...] = (8, 8, 16, 8)  # the first stage has none

    memory_layers: int = 2
    memory_feedforward: int = 512
    fuser_layers: int = 1

    everything_iou: float = 0.7
    everything_stability: float = 0.85
    obeys_clicks: bool = True

    def problems(self) -> Iterator[str]:
        """What is wrong with it, one sentence each."""
        yield from field_problems(self, self.ranges())
        counts = (self.stage_channels, self.stages, self.stage_heads, self.windows)
        if any(len(each) != STAGES for each in counts):
            yield "needs four stages with their channels, heads and windows"
        if sum(self.stages) > MOST_BLOCKS:
            yield f"{sum(self.stages)} blocks are more than {MOST_BLOCKS}"
        if any(c % heads for c, heads in zip(self.stage_channels, self.stage_heads, strict=True)):
            yield f"heads {self.stage_heads} do not divide the channels of their stages"
        if self.stage_channels[0] % 2:
            yield "the stem has half the channels of the first stage, which are odd"
        yield from tracker_problems(self)
        yield from map_problems(self)

    @classmethod
    def ranges(cls) -> Mapping[str, Range]:
        """The ranges of the numbers of the trunk."""
        return {"stage_channels": (2, 2048), "stage_heads": (1, 64)}

    @property
    def trunk(self) -> TinyVit:
        """The dimensions of the trunk."""
        return TinyVit(self.stage_channels, self.stages, self.stage_heads, self.windows)


NANO = NanoConfig()
CONFIGS = {NANO.name: NANO}


def find_config(wanted: "str | NanoConfig | Mapping[str, Any]") -> NanoConfig:
    """A config from its name, from itself, or from a mapping of its fields."""
    return find_config_of(NanoConfig, CONFIGS, wanted)


def from_json(text: str) -> NanoConfig:
    """Read what `to_json` wrote."""
    return config_from_json(NanoConfig, text)

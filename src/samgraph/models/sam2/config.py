"""Configs of SAM 2: one dataclass, a table of four sizes, four switches.

SAM 2.1 differs from SAM 2 in four switches, all of them about memory: an embedding added to
the memory of an occluded or absent object, and the time encoding of object pointers (present,
projected, signed).
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from samgraph.models.sam2.config_rules import MOST_BLOCKS, field_problems, map_problems
from samgraph.models.sam2.tracker_config import (
    SAM2_0,
    TrackerConfig,
    config_from_json,
    find_config_of,
    tracker_problems,
)


@dataclass(frozen=True, slots=True)
class Sam2Config(TrackerConfig):
    """Every dimension of a SAM 2 model. The defaults are SAM 2.1 tiny."""

    name: str = "sam2.1-tiny"

    # Hiera, the image encoder's trunk (section 4)
    embed_dim: int = 96
    heads: int = 1
    stages: tuple[int, ...] = (1, 2, 7, 2)
    global_blocks: tuple[int, ...] = (5, 7, 9)
    background_size: tuple[int, int] = (7, 7)
    windows: tuple[int, ...] = (8, 4, 14, 7)
    mlp_ratio: int = 4

    def problems(self) -> Iterator[str]:
        """What is wrong with it, one sentence each."""
        yield from field_problems(self, self.ranges())
        yield from _trunk_problems(self)
        yield from tracker_problems(self)
        yield from map_problems(self)

    @property
    def stage_channels(self) -> tuple[int, ...]:
        """Channels of the trunk's stages, finest first."""
        return tuple(self.embed_dim * 2**i for i in range(len(self.stages)))

    def smallest(self) -> "Sam2Config":
        """The same weights for the smallest input, so that tracing makes no large constants."""
        return self.at_size(min(self.image_size, math.lcm(64, 4 * self.windows[0])))


def _trunk_problems(config: Sam2Config) -> Iterator[str]:
    """Inconsistencies between fields of Hiera that are each within their range."""
    stage_count = len(config.stages)
    if stage_count != 4 or len(config.windows) != stage_count:
        yield "needs four stages and as many windows"
    if config.image_size % 32 == 0 and config.image_size // 4 % config.windows[0]:
        yield f"image size {config.image_size} is not a multiple of {4 * config.windows[0]}"
    if any(window % 2 for window in config.windows[:3]):
        yield f"windows {config.windows} must be even before a pooling block"
    if config.embed_dim % config.heads:
        yield f"{config.heads} heads do not divide {config.embed_dim} channels"
    firsts = {sum(config.stages[:i]) for i in range(1, stage_count)}
    if firsts & set(config.global_blocks):
        yield "a pooling block cannot have global attention"
    if sum(config.stages) > MOST_BLOCKS:
        yield f"{sum(config.stages)} blocks are more than {MOST_BLOCKS}"


_SIZES: dict[str, dict[str, Any]] = {
    "tiny": {},
    "small": {"stages": (1, 2, 11, 2), "global_blocks": (7, 10, 13)},
    "base-plus": {
        "embed_dim": 112,
        "heads": 2,
        "stages": (2, 3, 16, 3),
        "global_blocks": (12, 16, 20),
        "background_size": (14, 14),
    },
    "large": {
        "embed_dim": 144,
        "heads": 2,
        "stages": (2, 6, 36, 4),
        "global_blocks": (23, 33, 43),
        "windows": (8, 4, 16, 8),
    },
}
CONFIGS: dict[str, Sam2Config] = {
    f"{version}-{size}": Sam2Config(
        name=f"{version}-{size}", **shape, **(SAM2_0 if version == "sam2" else {})
    )
    for version in ("sam2", "sam2.1")
    for size, shape in _SIZES.items()
}

# Its tensors have the names and shapes of SAM 2.1 tiny: its files are known by their names.
MEDSAM2 = replace(CONFIGS["sam2.1-tiny"], name="medsam2", image_size=512)


def find_config(wanted: "str | Sam2Config | Mapping[str, Any]") -> Sam2Config:
    """A config from its name, from itself, or from a mapping of its fields."""
    named = {**CONFIGS, MEDSAM2.name: MEDSAM2}
    return find_config_of(Sam2Config, named, wanted)


def from_json(text: str) -> Sam2Config:
    """Read what `Sam2Config.to_json` wrote."""
    return config_from_json(Sam2Config, text)

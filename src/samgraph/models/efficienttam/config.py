"""Configs of EfficientTAM: two widths, two input sizes, three kinds of cross-attention to memory.

The released files of one width all have the same tensors: nothing in them shows the input size or
the cross-attention.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from samgraph.models.sam2.config_rules import Range, field_problems, map_problems
from samgraph.models.sam2.tracker_config import (
    TrackerConfig,
    config_from_json,
    find_config_of,
    tracker_problems,
)

# Where the weight of pooled memory tokens is added: to their scores (`_1`), to their keys (`_2`).
POOLINGS = ("none", "scores", "keys")


@dataclass(frozen=True, slots=True)
class EfficientTamConfig(TrackerConfig):
    """Every dimension of an EfficientTAM model. The defaults are `efficienttam-s`."""

    name: str = "efficienttam-s"

    # the trunk, a plain ViT
    embed_dim: int = 384
    heads: int = 6
    blocks: int = 12
    global_blocks: tuple[int, ...] = (2, 5, 8, 11)
    window: int = 14
    patch: int = 16
    position_side: int = 14  # of the grid of position embeddings
    mlp_ratio: int = 4

    # memory
    pooling: str = "none"  # one of `POOLINGS`

    # as SAM 2.0
    hidden_object_embedding: bool = False
    pointer_time: bool = False
    project_pointer_time: bool = False
    signed_pointer_time: bool = False

    def problems(self) -> Iterator[str]:
        """What is wrong with it, one sentence each."""
        yield from field_problems(self, self.ranges())
        if self.pooling not in POOLINGS:
            yield f"`pooling` is not one of {', '.join(POOLINGS)}"
        if self.embed_dim % self.heads:
            yield f"{self.heads} heads do not divide {self.embed_dim} channels"
        if self.patch != 16:
            yield "patches are not 16 pixels wide"
        yield from tracker_problems(self)
        if self.memory_pool > 1 and self.pooling != "none" and self.grid % 4:
            yield f"image size {self.image_size} is not a multiple of 64, to pool the memory twice"
        yield from map_problems(self)

    @classmethod
    def ranges(cls) -> Mapping[str, Range]:
        """The ranges of the numbers of the trunk."""
        return {"blocks": (1, 128), "window": (1, 64), "patch": (1, 64), "position_side": (1, 128)}

    @property
    def feature_maps(self) -> dict[str, tuple[int, int, int]]:
        """The embedding alone: there are no maps of high resolution."""
        return {"embedding": (self.channels, self.grid, self.grid)}


_SIZES: dict[str, dict[str, Any]] = {"s": {}, "ti": {"embed_dim": 192, "heads": 3}}
CONFIGS: dict[str, EfficientTamConfig] = {
    f"efficienttam-{size}": EfficientTamConfig(name=f"efficienttam-{size}", **fields)
    for size, fields in _SIZES.items()
}
_CHANGES: dict[str, dict[str, Any]] = {
    "1": {"pooling": "scores"},
    "2": {"pooling": "keys"},
    "512x512": {"image_size": 512},
}
# Configs whose checkpoints have the tensors of a plain one, by its name.
VARIANTS: dict[str, tuple[EfficientTamConfig, ...]] = {
    name: tuple(replace(config, name=f"{name}-{end}", **change) for end, change in _CHANGES.items())
    for name, config in CONFIGS.items()
}
NAMED = {config.name: config for variants in VARIANTS.values() for config in variants}


def find_config(wanted: "str | EfficientTamConfig | Mapping[str, Any]") -> EfficientTamConfig:
    """A config from its name, from itself, or from a mapping of its fields."""
    return find_config_of(EfficientTamConfig, {**CONFIGS, **NAMED}, wanted)


def from_json(text: str) -> EfficientTamConfig:
    """Read what `to_json` wrote."""
    return config_from_json(EfficientTamConfig, text)

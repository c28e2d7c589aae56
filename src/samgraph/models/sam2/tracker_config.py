"""The config that SAM 2 and its sister models share: all that follows the image encoder.

A family adds the fields of its trunk (`Sam2Config`), and may store memory as other tokens.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields, replace
from difflib import get_close_matches
from typing import Any, ClassVar, Self, TypeVar

from samgraph.errors import OptionError
from samgraph.graph import Array
from samgraph.models.sam2.config_rules import Range, field_problems, map_problems
from samgraph.models.sam2.positions import token_positions
from samgraph.untrusted.text import shown, strict_json

LONGEST_JSON = 1 << 14
REFINED_CHANNELS = 8  # of the map on which masks are refined
_NOT_GIVEN = frozenset(("memory_pool",))  # set by an approximation alone, never by a file
Config = TypeVar("Config", bound="TrackerConfig")


@dataclass(frozen=True, slots=True)
class TrackerConfig:
    """The dimensions of prompts, mask decoder and memory. The defaults are those of SAM 2.1."""

    # pixels of the input per pixel of a low-resolution mask: 4, or 2 where a family refines masks
    mask_stride: ClassVar[int] = 4

    name: str = "custom"
    image_size: int = 1024

    # neck, prompts and mask decoder
    channels: int = 256
    prompt_mask_channels: int = 16
    decoder_depth: int = 2
    decoder_heads: int = 8
    decoder_feedforward: int = 2048

    # automatic masks are kept from this predicted IoU and stability on; the reference's
    everything_iou: float = 0.8
    everything_stability: float = 0.95

    # of models that learned from tracks with one prompt: clicks on a tracked frame are answered
    # without memory (`predict/video/corrections.py`), and remembered as a tracked frame is
    obeys_clicks: bool = False

    # memory
    memory_channels: int = 64
    memory_layers: int = 4
    memory_heads: int = 1
    memory_feedforward: int = 2048
    memory_frames: int = 7
    fuser_layers: int = 2
    rope_theta: float = 10000.0
    max_pointers: int = 16
    memory_pool: int = 1  # 2: frames but the last are averaged over 2 x 2 cells, an approximation

    # where memory attention adds positions, and whether the angles of RoPE repeat for every frame
    pos_enc_at_attn: bool = False
    pos_enc_at_cross_attn_queries: bool = False
    pos_enc_at_cross_attn_keys: bool = True
    rope_k_repeat: bool = True  # without, the memory is one frame

    # epsilon of the norms: of the trunk and of images, and of the two transformers
    norm_eps: float = 1e-6
    transformer_norm_eps: float = 1e-5

    # the four switches of SAM 2.1
    hidden_object_embedding: bool = True
    pointer_time: bool = True
    project_pointer_time: bool = True
    signed_pointer_time: bool = True

    def __post_init__(self) -> None:
        for problem in self.problems():
            raise OptionError(f"config `{shown(str(self.name)[:80])}`: {problem}")

    def problems(self) -> Iterator[str]:
        """What is wrong with it, one sentence each; a later rule may rely on the earlier."""
        yield from field_problems(self, self.ranges())
        yield from tracker_problems(self)
        yield from map_problems(self)

    @classmethod
    def ranges(cls) -> Mapping[str, Range]:
        """The ranges of numbers that a family adds."""
        return {}

    @property
    def grid(self) -> int:
        """Side of the stride-16 feature map that everything after the encoder works on."""
        return self.image_size // 16

    @property
    def mask_size(self) -> int:
        """Side of a low-resolution mask."""
        return self.image_size // self.mask_stride

    @property
    def memory_tokens(self) -> int:
        """Tokens of the mask memory of one frame."""
        return self.grid**2

    def memory_positions(self) -> Array:
        """The sine encoding of the positions of a frame's memory tokens: [T, channels]."""
        return token_positions(self.memory_channels, self.grid)

    @property
    def feature_maps(self) -> dict[str, tuple[int, int, int]]:
        """The maps [C, H, W] that the image encoder gives the decoder."""
        C, E = self.channels, self.grid
        maps = {
            "embedding": (C, E, E),
            "fine_0": (C // 8, 4 * E, 4 * E),
            "fine_1": (C // 4, 2 * E, 2 * E),
        }
        if self.mask_stride == 2:
            maps["finest"] = (REFINED_CHANNELS, 8 * E, 8 * E)
        return maps

    def at_size(self, image_size: int) -> Self:
        """The same model for another input size."""
        return replace(self, image_size=image_size)

    def smallest(self) -> Self:
        """The same weights for the smallest input, so that tracing makes no large constants."""
        return self.at_size(min(self.image_size, 64))

    def to_json(self) -> str:
        """Text that `config_from_json` reads back."""
        return json.dumps({k: v for k, v in asdict(self).items() if k not in _NOT_GIVEN})


# The switches as they are in SAM 2, and in models that were made from it.
SAM2_0: dict[str, Any] = {
    "hidden_object_embedding": False,
    "pointer_time": False,
    "project_pointer_time": False,
    "signed_pointer_time": False,
}


def tracker_problems(config: TrackerConfig) -> Iterator[str]:
    """Inconsistencies between shared fields that are each within their range."""
    if config.image_size % 32 or config.image_size < 64:
        yield f"image size {config.image_size} is not a multiple of 32 from 64 up"
    if config.channels % (4 * config.memory_heads) or config.channels % config.memory_channels:
        yield "memory heads or channels do not divide the channels"
    if not (0 < config.norm_eps < 1 and 0 < config.transformer_norm_eps < 1):
        yield "the epsilon of a norm is not between 0 and 1"
    if config.channels % 8 or config.memory_channels % 4 or config.prompt_mask_channels % 4:
        yield "channels are not multiples of 8, of memory and mask prompts of 4"
    if config.channels // 2 % config.decoder_heads:
        yield "decoder heads do not divide half the channels"


def find_config_of(
    kind: type[Config], named: Mapping[str, Config], wanted: "str | Config | Mapping[str, Any]"
) -> Config:
    """A config of a family from its name, from itself, or from a mapping of its fields."""
    if isinstance(wanted, kind):
        return wanted
    if isinstance(wanted, str):
        if wanted in named:
            return named[wanted]
        near = get_close_matches(wanted[:80], named, n=3) or list(named)
        raise OptionError(f"there is no config `{shown(wanted)}`", expected=", ".join(near))
    if not isinstance(wanted, Mapping):
        raise OptionError("a config is a name or a mapping", got=f"a {type(wanted).__name__}")
    known = {field.name for field in fields(kind)} - _NOT_GIVEN
    unknown = sorted(str(key)[:80] for key in wanted if key not in known)
    if unknown:
        near = get_close_matches(unknown[0], known, n=3) or sorted(known)
        name = shown(unknown[0])
        raise OptionError(f"a config has no field `{name}`", expected=", ".join(near))
    return kind(**{"name": "custom", **{key: _plain(v) for key, v in wanted.items()}})


def config_from_json(kind: type[Config], text: str) -> Config:
    """Read what `TrackerConfig.to_json` wrote."""
    try:
        data = strict_json(text, most_bytes=LONGEST_JSON)
    except ValueError as error:
        raise OptionError("the config is not JSON", got=shown(str(error))) from error
    if not isinstance(data, dict):
        raise OptionError("the config is not a JSON object", got=type(data).__name__)
    return find_config_of(kind, {}, data)


def _plain(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value

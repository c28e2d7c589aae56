"""Configs of SAM 2: one dataclass, a table of four sizes, four switches.

SAM 2.1 differs from SAM 2 in four switches, all of them about memory: an embedding added to
the memory of an occluded or absent object, and the time encoding of object pointers (present,
projected, signed).
"""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from difflib import get_close_matches
from typing import Any

from samgraph.errors import OptionError
from samgraph.models.sam2.config_rules import field_problems, size_problems
from samgraph.untrusted.text import shown, strict_json

LONGEST_JSON = 1 << 14
_NOT_GIVEN = frozenset(("memory_pool",))  # set by an approximation alone, never by a file


@dataclass(frozen=True, slots=True)
class Sam2Config:
    """Every dimension of a SAM 2 model. The defaults are SAM 2.1 tiny."""

    name: str = "sam2.1-tiny"
    image_size: int = 1024

    # Hiera, the image encoder's trunk (section 4)
    embed_dim: int = 96
    heads: int = 1
    stages: tuple[int, ...] = (1, 2, 7, 2)
    global_blocks: tuple[int, ...] = (5, 7, 9)
    background_size: tuple[int, int] = (7, 7)
    windows: tuple[int, ...] = (8, 4, 14, 7)
    mlp_ratio: int = 4

    # neck, prompts and mask decoder
    channels: int = 256
    prompt_mask_channels: int = 16
    decoder_depth: int = 2
    decoder_heads: int = 8
    decoder_feedforward: int = 2048
    mask_blur: float = 0.0  # of low-resolution masks, in their pixels; none in released models

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

    # epsilon of the norms: of Hiera and of images, and of the two transformers
    norm_eps: float = 1e-6
    transformer_norm_eps: float = 1e-5

    # the four switches of SAM 2.1
    hidden_object_embedding: bool = True
    pointer_time: bool = True
    project_pointer_time: bool = True
    signed_pointer_time: bool = True

    def __post_init__(self) -> None:
        for problems in (field_problems, _problems, size_problems):
            for problem in problems(self):
                raise OptionError(f"config `{shown(str(self.name)[:80])}`: {problem}")

    @property
    def grid(self) -> int:
        """Side of the stride-16 feature map that everything after the encoder works on."""
        return self.image_size // 16

    @property
    def mask_size(self) -> int:
        """Side of a low-resolution mask."""
        return self.image_size // 4

    @property
    def stage_channels(self) -> tuple[int, ...]:
        """Channels of the trunk's stages, finest first."""
        return tuple(self.embed_dim * 2**i for i in range(len(self.stages)))

    def at_size(self, image_size: int) -> "Sam2Config":
        """The same model for another input size."""
        return replace(self, image_size=image_size)

    def smallest(self) -> "Sam2Config":
        """The same weights for the smallest input, so that tracing makes no large constants."""
        return self.at_size(min(self.image_size, math.lcm(64, 4 * self.windows[0])))

    def to_json(self) -> str:
        """Text that `from_json` reads back."""
        return json.dumps({k: v for k, v in asdict(self).items() if k not in _NOT_GIVEN})


def _problems(config: Sam2Config) -> list[str]:
    """Inconsistencies between fields that are each within their range."""
    stage_count = len(config.stages)
    if stage_count != 4 or len(config.windows) != stage_count:
        return ["needs four stages and as many windows"]
    found = []
    if config.image_size % 32 or config.image_size < 64:
        found.append(f"image size {config.image_size} is not a multiple of 32 from 64 up")
    elif config.image_size // 4 % config.windows[0]:
        found.append(f"image size {config.image_size} is not a multiple of {4 * config.windows[0]}")
    if any(window % 2 for window in config.windows[:3]):
        found.append(f"windows {config.windows} must be even before a pooling block")
    if config.embed_dim % config.heads:
        found.append(f"{config.heads} heads do not divide {config.embed_dim} channels")
    firsts = {sum(config.stages[:i]) for i in range(1, stage_count)}
    if firsts & set(config.global_blocks):
        found.append("a pooling block cannot have global attention")
    if config.channels % (4 * config.memory_heads) or config.channels % config.memory_channels:
        found.append("memory heads or channels do not divide the channels")
    if not (0 < config.norm_eps < 1 and 0 < config.transformer_norm_eps < 1):
        found.append("the epsilon of a norm is not between 0 and 1")
    if config.channels % 8 or config.memory_channels % 4 or config.prompt_mask_channels % 4:
        found.append("channels are not multiples of 8, of memory and mask prompts of 4")
    if config.channels // 2 % config.decoder_heads:
        found.append("decoder heads do not divide half the channels")
    return found


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
_SAM2_0: dict[str, Any] = {
    "hidden_object_embedding": False,
    "pointer_time": False,
    "project_pointer_time": False,
    "signed_pointer_time": False,
}

CONFIGS: dict[str, Sam2Config] = {
    f"{version}-{size}": Sam2Config(
        name=f"{version}-{size}", **shape, **(_SAM2_0 if version == "sam2" else {})
    )
    for version in ("sam2", "sam2.1")
    for size, shape in _SIZES.items()
}

# Its tensors have the names and shapes of SAM 2.1 tiny, so it must be given by `config=`.
MEDSAM2 = replace(CONFIGS["sam2.1-tiny"], name="medsam2", image_size=512)

# The built-in model, trained by `training/`.
NANO = Sam2Config(
    name="samgraph-nano",
    image_size=512,
    embed_dim=48,
    stages=(1, 2, 7, 1),
    global_blocks=(5, 7, 9),
    windows=(8, 4, 16, 8),
    memory_layers=2,
    memory_feedforward=512,
    fuser_layers=1,
    mask_blur=1.2,
)


def find_config(wanted: "str | Sam2Config | Mapping[str, Any]") -> Sam2Config:
    """A config from its name, from itself, or from a mapping of its fields."""
    if isinstance(wanted, Sam2Config):
        return wanted
    if isinstance(wanted, str):
        named = {**CONFIGS, MEDSAM2.name: MEDSAM2, NANO.name: NANO}
        if wanted in named:
            return named[wanted]
        near = get_close_matches(wanted[:80], named, n=3) or list(named)
        raise OptionError(f"there is no config `{shown(wanted)}`", expected=", ".join(near))
    if not isinstance(wanted, Mapping):
        raise OptionError("a config is a name or a mapping", got=f"a {type(wanted).__name__}")
    known = {field.name for field in fields(Sam2Config)} - _NOT_GIVEN
    unknown = sorted(str(key)[:80] for key in wanted if key not in known)
    if unknown:
        near = get_close_matches(unknown[0], known, n=3) or sorted(known)
        name = shown(unknown[0])
        raise OptionError(f"a config has no field `{name}`", expected=", ".join(near))
    return Sam2Config(**{"name": "custom", **{key: _plain(v) for key, v in wanted.items()}})


def from_json(text: str) -> Sam2Config:
    """Read what `Sam2Config.to_json` wrote."""
    try:
        data = strict_json(text, most_bytes=LONGEST_JSON)
    except ValueError as error:
        raise OptionError("the config is not JSON", got=shown(str(error))) from error
    if not isinstance(data, dict):
        raise OptionError("the config is not a JSON object", got=type(data).__name__)
    return find_config(data)


def _plain(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value

"""Validation of configs: the type of every field by its annotation, and its range.

Configs are also read from files, so they are validated before anything is allocated. The ranges are
a few times those of the largest SAM 2; a field that is not in the table has the range of its type.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any, get_args, get_origin, get_type_hints

from samgraph.untrusted.text import shown

Range = tuple[float, float]

LONGEST_NAME = 64
LONGEST_TUPLE = 128
MOST_BLOCKS = 128  # of the trunk; the large model has 48
MOST_CELLS = 1 << 24  # values of one map of the grid: 4096 pixels at 256 channels

BY_TYPE: dict[type, Range] = {int: (0, 16_384), float: (-1e6, 1e6)}
RANGES: dict[str, Range] = {
    "image_size": (64, 4096),
    "embed_dim": (1, 1024),
    "heads": (1, 64),
    "stages": (1, MOST_BLOCKS),
    "global_blocks": (0, MOST_BLOCKS - 1),
    "background_size": (1, 128),
    "windows": (1, 64),
    "mlp_ratio": (1, 16),
    "channels": (8, 2048),
    "prompt_mask_channels": (4, 256),
    "decoder_depth": (1, 16),
    "decoder_heads": (1, 64),
    "decoder_feedforward": (1, 16_384),
    "everything_iou": (0, 1),
    "everything_stability": (0, 1),
    "norm_eps": (0, 1),
    "transformer_norm_eps": (0, 1),
    "memory_channels": (1, 2048),
    "memory_layers": (1, 16),
    "memory_heads": (1, 64),
    "memory_feedforward": (1, 16_384),
    "memory_frames": (1, 64),
    "memory_pool": (1, 2),
    "fuser_layers": (1, 16),
    "rope_theta": (1, 1e8),
    "max_pointers": (1, 256),
}


def field_problems(config: Any, more: Mapping[str, Range] | None = None) -> Iterator[str]:
    """Problems of single fields of a config dataclass, one sentence each.

    `more` are ranges of fields that the table does not have.
    """
    hints, ranges = get_type_hints(type(config)), {**RANGES, **(more or {})}
    for field in fields(config):
        problem = _problem(field.name, getattr(config, field.name), hints[field.name], ranges)
        if problem:
            yield problem


def map_problems(config: Any) -> Iterator[str]:
    """Maps that are too large, though each of their dimensions is within its range."""
    if config.grid**2 * config.channels > MOST_CELLS:
        yield f"{config.channels} channels are too many at {config.image_size} pixels"


def _problem(name: str, value: object, hint: Any, ranges: Mapping[str, Range]) -> str | None:
    if get_origin(hint) is tuple:
        return _tuple_problem(name, value, get_args(hint), ranges)
    if hint is str:
        is_name = isinstance(value, str) and value.isprintable() and 0 < len(value) <= LONGEST_NAME
        return None if is_name else f"`{name}` is not a short printable text"
    if not _is_of(hint, value):
        return f"`{name}` is not {_called(hint)}: {shown(repr(value)[:80])}"
    low, high = ranges.get(name) or BY_TYPE.get(hint, (-math.inf, math.inf))
    if not low <= value <= high:  # type: ignore[operator]  # a number, as was just checked
        return f"`{name}` is {shown(str(value)[:40])}, not within {low:g} and {high:g}"
    return None


def _tuple_problem(
    name: str, value: object, kinds: tuple[Any, ...], ranges: Mapping[str, Range]
) -> str | None:
    """`tuple[int, ...]` may have any length up to a limit, `tuple[int, int]` exactly two."""
    if not isinstance(value, tuple):
        return f"`{name}` is not a list of numbers"
    fits = len(value) <= LONGEST_TUPLE if kinds[-1] is Ellipsis else len(value) == len(kinds)
    if not fits:
        return f"`{name}` has {len(value):,} entries"
    return next(filter(None, (_problem(name, item, kinds[0], ranges) for item in value)), None)


def _is_of(kind: type, value: object) -> bool:
    """Whether a value has a type; an int is accepted as a float, a bool is not a number."""
    if kind is bool:
        return isinstance(value, bool)
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    return isinstance(value, kind) and not isinstance(value, bool)


def _called(kind: type) -> str:
    words = {int: "a whole number", float: "a number", bool: "true or false"}
    return words.get(kind, f"a {kind.__name__}")

"""samgraph-nano as a family of the registry."""

from collections.abc import Mapping
from functools import partial

from samgraph.models.family import Family
from samgraph.models.nano.config import CONFIGS, NanoConfig, find_config, from_json
from samgraph.models.nano.graphs import GRAPHS
from samgraph.models.nano.model import NanoModel
from samgraph.models.sam2.exports import plan

_STEM = "image_encoder.trunk.patch_embed.seq.0.weight"
_FINEST = "sam_mask_decoder.conv_finest.weight"


def signature(config: NanoConfig) -> tuple[object, ...]:
    """A key that distinguishes models: the width of the stem."""
    return (config.stage_channels[0] // 2,)


def found_signature(shapes: Mapping[str, tuple[int, ...]]) -> tuple[object, ...] | None:
    """The same key from a checkpoint's shapes; None without a TinyViT and the finest map."""
    stem = shapes.get(_STEM, ())
    return (stem[0],) if len(stem) == 4 and _FINEST in shapes else None


family = Family(
    name="nano",
    configs=CONFIGS,
    named={},
    trace=GRAPHS.trace,
    weight_shapes=GRAPHS.weight_shapes,
    unread=GRAPHS.unread,
    signature=signature,
    found_signature=found_signature,
    find_config=find_config,
    config_from_json=from_json,
    build=NanoModel,
    export_plan=partial(plan, family=GRAPHS),
    approximations=frozenset(("pooled-memory", "few-memories", "small-input")),
)

"""EdgeTAM as a family of the registry."""

from collections.abc import Mapping
from functools import partial

from samgraph.models.edgetam.config import CONFIGS, EdgeTamConfig, find_config, from_json
from samgraph.models.edgetam.graphs import GRAPHS
from samgraph.models.edgetam.model import EdgeTamModel
from samgraph.models.family import Family
from samgraph.models.sam2.exports import plan

_LATENTS, _STEM = "spatial_perceiver.latents", "image_encoder.trunk.body.stem.conv2.c.weight"


def signature(config: EdgeTamConfig) -> tuple[object, ...]:
    """A key that distinguishes models: the number of latents and the width of the trunk."""
    return (config.latents, config.stage_channels[0])


def found_signature(shapes: Mapping[str, tuple[int, ...]]) -> tuple[object, ...] | None:
    """The same key from a checkpoint's shapes; None without a perceiver."""
    latents, stem = shapes.get(_LATENTS, ()), shapes.get(_STEM, ())
    return (latents[0], stem[0]) if latents and stem else None


family = Family(
    name="edgetam",
    configs=CONFIGS,
    named={},
    trace=GRAPHS.trace,
    weight_shapes=GRAPHS.weight_shapes,
    unread=GRAPHS.unread,
    signature=signature,
    found_signature=found_signature,
    find_config=find_config,
    config_from_json=from_json,
    build=EdgeTamModel,
    export_plan=partial(plan, family=GRAPHS),
    approximations=frozenset(("pooled-memory", "few-memories", "small-input")),
)

"""EfficientTAM as a family of the registry."""

from collections.abc import Mapping

from samgraph.graph import Array
from samgraph.models.efficienttam.config import (
    CONFIGS,
    NAMED,
    VARIANTS,
    EfficientTamConfig,
    find_config,
    from_json,
)
from samgraph.models.efficienttam.graphs import GRAPHS, POOLED_GRAPHS
from samgraph.models.efficienttam.model import EfficientTamModel
from samgraph.models.family import ExportPlan, Family
from samgraph.models.sam2.exports import plan

_NECK, _POSITIONS = "image_encoder.neck.convs.0.conv_1x1.weight", "image_encoder.trunk.pos_embed"


def signature(config: EfficientTamConfig) -> tuple[object, ...]:
    """A key that distinguishes the widths."""
    return (config.embed_dim,)


def found_signature(shapes: Mapping[str, tuple[int, ...]]) -> tuple[object, ...] | None:
    """The same key from a checkpoint's shapes; None without its neck and a plain ViT."""
    positions = shapes.get(_POSITIONS, ())
    return (positions[2],) if _NECK in shapes and len(positions) == 3 else None


def export_plan(config: EfficientTamConfig, weights: Mapping[str, Array]) -> ExportPlan:
    """What is exported: of pooled variants the attention to one remembered frame besides."""
    if config.pooling == "none":
        return plan(config, weights, GRAPHS)
    return plan(config, weights, POOLED_GRAPHS, GRAPHS.traces["memory_attention"])


family = Family(
    name="efficienttam",
    configs=CONFIGS,
    named=NAMED,
    trace=GRAPHS.trace,
    weight_shapes=GRAPHS.weight_shapes,
    unread=GRAPHS.unread,
    signature=signature,
    found_signature=found_signature,
    find_config=find_config,
    config_from_json=from_json,
    build=EfficientTamModel,
    export_plan=export_plan,
    approximations=frozenset(("pooled-memory", "few-memories", "small-input")),
    variants={name: tuple(config.name for config in some) for name, some in VARIANTS.items()},
)

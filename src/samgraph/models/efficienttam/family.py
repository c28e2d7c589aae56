"""EfficientTAM as a family of the registry."""

from collections.abc import Mapping

from samgraph.models.efficienttam.config import (
    CONFIGS,
    NAMED,
    VARIANTS,
    EfficientTamConfig,
    find_config,
    from_json,
)
from samgraph.models.efficienttam.graphs import GRAPHS
from samgraph.models.efficienttam.model import EfficientTamModel
from samgraph.models.family import Family

_NECK, _POSITIONS = "image_encoder.neck.convs.0.conv_1x1.weight", "image_encoder.trunk.pos_embed"


def signature(config: EfficientTamConfig) -> tuple[object, ...]:
    """A key that distinguishes the widths."""
    return (config.embed_dim,)


def found_signature(shapes: Mapping[str, tuple[int, ...]]) -> tuple[object, ...] | None:
    """The same key from a checkpoint's shapes; None without its neck and a plain ViT."""
    positions = shapes.get(_POSITIONS, ())
    return (positions[2],) if _NECK in shapes and len(positions) == 3 else None


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
    variants={name: tuple(config.name for config in some) for name, some in VARIANTS.items()},
)

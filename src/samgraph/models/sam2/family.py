"""SAM 2 and SAM 2.1 as a family of the registry."""

from collections.abc import Mapping

from samgraph.models.family import Family
from samgraph.models.sam2.config import CONFIGS, MEDSAM2, Sam2Config, find_config, from_json
from samgraph.models.sam2.exports import plan
from samgraph.models.sam2.graphs import trace_graphs, unread, weight_shapes
from samgraph.models.sam2.model import Sam2Model

_ONLY_IN_2_1 = ("no_obj_embed_spatial", "obj_ptr_tpos_proj.weight", "obj_ptr_tpos_proj.bias")


def signature(config: Sam2Config) -> tuple[object, ...]:
    """A key that distinguishes the released models: width, depth, background, version."""
    return (
        config.embed_dim,
        sum(config.stages),
        config.background_size,
        config.hidden_object_embedding,
    )


def found_signature(shapes: Mapping[str, tuple[int, ...]]) -> tuple[object, ...] | None:
    """The same key from a checkpoint's shapes; None without a Hiera trunk."""
    trunk = "image_encoder.trunk."
    background = shapes.get(f"{trunk}pos_embed", ())
    if len(background) != 4:
        return None
    blocks = {key.split(".")[3] for key in shapes if key.startswith(f"{trunk}blocks.")}
    is_2_1 = any(name in shapes for name in _ONLY_IN_2_1)  # any: one of them may be missing
    return (background[1], len(blocks), tuple(background[2:]), is_2_1)


family = Family(
    name="sam2",
    configs=CONFIGS,
    named={MEDSAM2.name: MEDSAM2},
    trace=trace_graphs,
    weight_shapes=weight_shapes,
    unread=unread,
    signature=signature,
    found_signature=found_signature,
    find_config=find_config,
    config_from_json=from_json,
    build=Sam2Model,
    export_plan=plan,
    approximations=frozenset(("pooled-memory", "few-memories", "small-input")),
)

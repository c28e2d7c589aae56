"""The graphs of EfficientTAM: its own trunk, the decoder and memory of SAM 2.

The variants with a pooled memory have two versions of each graph that attends: SAM 2's for one
remembered frame, and `..._pooled` for more.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from samgraph.graph import Builder, Graph
from samgraph.models.efficienttam.config import EfficientTamConfig
from samgraph.models.efficienttam.pooled_attention import pooled_attention
from samgraph.models.efficienttam.vit import neck, vit
from samgraph.models.sam2.attention_graphs import (
    attend_bank,
    attend_memory,
    attend_prepared,
    prepare_frame,
)
from samgraph.models.sam2.graphs import graph_set
from samgraph.models.sam2.memory_design import MemoryDesign

POOLED = "_pooled"
_DESIGN = MemoryDesign(attend=pooled_attention)


def image_encoder(config: EfficientTamConfig) -> Graph:
    """image [B, 3, S, S], normalised -> embedding [B, C, E, E]."""
    builder = Builder("image_encoder")
    S = config.image_size
    image = builder.input("image", f"f32[B,3,{S},{S}]")
    at = builder.scope() / "image_encoder"
    x = vit(at / "trunk", config, image).transpose(0, 3, 1, 2)
    return builder.finish(embedding=neck(at / "neck", config, x))


def _pooled(graph: Graph) -> Graph:
    return replace(graph, name=graph.name + POOLED)


_TRACKING: dict[str, Callable[[Any], Graph]] = {
    f"memory_attention{POOLED}": lambda config: _pooled(attend_memory(config, design=_DESIGN)),
    f"attend_bank{POOLED}": lambda config: _pooled(attend_bank(config, design=_DESIGN)),
    f"attend_bank_fp32{POOLED}": lambda config: _pooled(attend_bank(config, "f32", _DESIGN)),
    f"prepare_frame{POOLED}": lambda config: _pooled(prepare_frame(config, _DESIGN)),
    f"attend_prepared{POOLED}": lambda config: _pooled(attend_prepared(config, design=_DESIGN)),
    f"attend_prepared_fp32{POOLED}": lambda config: _pooled(
        attend_prepared(config, "f32", _DESIGN)
    ),
}
_PLAIN = graph_set(image_encoder)
GRAPHS = replace(_PLAIN, tracking={**_PLAIN.tracking, **_TRACKING})
# The graphs of a pooled variant, but for a single remembered frame.
POOLED_GRAPHS = graph_set(image_encoder, _DESIGN)

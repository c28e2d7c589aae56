"""What is exported of SAM 2: its graphs, and how to call them, as plain data.

    image_encoder      pixels -> features, once per image or frame
    decode_points      points or boxes on a still image, N prompts at once
    decode             any prompt on features that may be conditioned on memory
    mask_prompt        a mask given by a user
    memory_encoder     a frame and its masks -> memories
    memory_attention   features conditioned on memories
    track              memory_attention, decode without a prompt, memory_encoder: one tracked frame

Symbols and shapes as in `graphs.py`.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from samgraph import ops
from samgraph.graph import Array, Builder, Graph, symbol
from samgraph.models.family import ABSENT, NO_POINT, ExportPlan
from samgraph.models.sam2 import graphs
from samgraph.models.sam2.attention_graphs import attend_memory
from samgraph.models.sam2.export_steps import GRAPHS, STEPS, SYMBOLS, VALUES
from samgraph.models.sam2.mask_decoder import STABILITY_DELTA, STABILITY_WANTED
from samgraph.models.sam2.memory_design import SAM2_MEMORY, MemoryDesign
from samgraph.models.sam2.tracker_config import TrackerConfig
from samgraph.passes.fix_inputs import fix_inputs

# Masks decoded in a lower precision differ: down to 0.88 IoU in bf16, 0.90 in fp16 (nano).
EXACT = frozenset(("decode", "decode_points", "mask_prompt"))
CLAMP = 32.0  # of logits that are given back as a mask prompt
MASK_SCORE = 10.0  # the object score of a mask given by a user


def plan(
    config: TrackerConfig,
    weights: Mapping[str, Array],
    image_encoder: Callable[[Any], Graph] = graphs.image_encoder,
    design: MemoryDesign = SAM2_MEMORY,
) -> ExportPlan:
    """The graphs to export, and the model's part of the manifest.

    A sister model with finer maps gives its own image encoder and design of memory.
    """
    attention = attend_memory(config, design=design)
    return ExportPlan(
        graphs={
            "image_encoder": image_encoder(config),
            "decode_points": graphs.decode_points(config),
            "decode": graphs.decode(config),
            "mask_prompt": graphs.mask_prompt(config),
            "memory_encoder": graphs.encode_memory(config, design=design),
            "memory_attention": _renamed(attention, "embedding", "conditioned"),
            "track": track(config, design),
        },
        exact=EXACT,
        about=GRAPHS,
        values=VALUES,
        symbols=SYMBOLS,
        constants=constants(config, weights),
        steps=STEPS,
    )


def track(config: TrackerConfig, design: MemoryDesign = SAM2_MEMORY) -> Graph:
    """One tracked frame: features [1, ...] and the memory of N objects -> masks and memories.

    As `memory_attention`, `decode` without a prompt and `memory_encoder`, one after another.
    """
    builder, N = Builder("track"), symbol("N")
    attend, decode = attend_memory(config, design=design), graphs.decode_tracked(config)
    remember = fix_inputs(graphs.encode_memory(config, design=design), {"binary": False})
    given = {value.name: builder.input(value.name, value.type) for value in attend.inputs}
    fine = {}
    for name in ("fine_0", "fine_1"):
        _, *shape = decode.input(name).type.shape
        single = builder.input(name, decode.input(name).type.reshaped((1, *shape)))
        fine[name] = ops.expand(single, N, *shape)
    conditioned = builder.inline(attend, given)["embedding"]
    with builder.exact():  # as the graphs in EXACT
        found = builder.inline(decode, {"embedding": conditioned, **fine})
    memory = builder.inline(
        remember,
        {
            "embedding": given["embedding"],
            "mask": found["best_mask"],
            "object_score": found["object_score"],
        },
    )["memory"]
    return builder.finish({**found, "new_memory": memory})


def _renamed(graph: Graph, output: str, name: str) -> Graph:
    """The graph with an output renamed: in a file it may not be called like an input."""
    outputs = tuple((name if key == output else key, value) for key, value in graph.outputs)
    return replace(graph, outputs=outputs)


def constants(config: TrackerConfig, weights: Mapping[str, Array]) -> dict[str, Any]:
    """Numbers that a caller needs besides the graphs."""
    return {
        "image_size": config.image_size,
        "mask_size": config.mask_size,
        "grid": config.grid,
        "channels": config.channels,
        "memory_channels": config.memory_channels,
        "memory_tokens": config.memory_tokens,
        "memory_frames": config.memory_frames,
        "max_pointers": config.max_pointers,
        "signed_pointer_time": config.signed_pointer_time,
        "labels": {
            "positive": 1,
            "negative": 0,
            "box_top_left": 2,
            "box_bottom_right": 3,
            "no_point": NO_POINT,
            "padding": ABSENT,
        },
        "mask_threshold": 0.0,
        "absent_logit": graphs.HIDDEN_LOGIT,
        "absent_pointer": [float(x) for x in weights["no_obj_ptr"].reshape(-1)],
        "mask_prompt_clamp": CLAMP,
        "mask_object_score": MASK_SCORE,
        "stability_delta": STABILITY_DELTA,
        "stability_wanted": STABILITY_WANTED,
    }

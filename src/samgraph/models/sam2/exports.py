"""What is exported of SAM 2: its graphs, and how to call them, as plain data.

    image_encoder      pixels -> features, once per image or frame
    decode_points      points or boxes on a still image, N prompts at once
    decode             any prompt on features that may be conditioned on memory
    mask_prompt        a mask given by a user
    memory_encoder     a frame and its masks -> memories
    memory_attention   features conditioned on memories
    track              memory_attention, decode without a prompt, memory_encoder: one tracked frame
    ..._one            the last two for a single remembered frame, where that is attended otherwise

Symbols and shapes as in `graphs.py`. Sister models export the same graphs of their own.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from samgraph import ops
from samgraph.graph import Array, Builder, Graph, symbol
from samgraph.models.family import ABSENT, NO_POINT, ExportPlan
from samgraph.models.sam2 import graphs
from samgraph.models.sam2.export_steps import GRAPHS, ONE, SYMBOLS, VALUES, steps
from samgraph.models.sam2.graph_set import GraphSet
from samgraph.models.sam2.mask_decoder import STABILITY_DELTA, STABILITY_WANTED
from samgraph.models.sam2.tracker_config import TrackerConfig
from samgraph.passes.fix_inputs import fix_inputs
from samgraph.passes.specialise import specialise

# Graphs of a family that are exported as they are.
CALLED = ("image_encoder", "decode", "mask_prompt", "memory_encoder", "memory_attention")
# Masks decoded in a lower precision differ: down to 0.88 IoU in bf16, 0.90 in fp16 (nano).
EXACT = frozenset(("decode", "decode_points", "mask_prompt"))
NONE = np.zeros(0, np.float32)  # of an image-only checkpoint
CLAMP = 32.0  # of logits that are given back as a mask prompt
MASK_SCORE = 10.0  # the object score of a mask given by a user


def plan(
    config: TrackerConfig,
    weights: Mapping[str, Array],
    family: GraphSet = graphs.GRAPHS,
    attend_one: Callable[[Any], Graph] | None = None,
) -> ExportPlan:
    """The graphs to export, and the model's part of the manifest.

    `attend_one` traces the memory attention to a single remembered frame, where that of `family`
    is for more.
    """
    traced = family.trace(config, CALLED)
    attend, remember = traced["memory_attention"], traced["memory_encoder"]
    found = {
        "image_encoder": traced["image_encoder"],
        "decode_points": graphs.decode_points(config),
        "decode": traced["decode"],
        "mask_prompt": traced["mask_prompt"],
        "memory_encoder": remember,
        "memory_attention": _renamed(attend, "embedding", "conditioned"),
        "track": track(config, attend, remember),
    }
    if attend_one is not None:
        one = specialise(attend_one(config), {"F": 1})
        named = replace(one, name=f"memory_attention{ONE}")
        found[named.name] = _renamed(named, "embedding", "conditioned")
        found[f"track{ONE}"] = track(config, one, remember, name=f"track{ONE}")
    return ExportPlan(
        graphs=found,
        exact=EXACT,
        about=GRAPHS,
        values=VALUES,
        symbols=SYMBOLS,
        constants=constants(config, weights),
        steps=steps(tuple(config.feature_maps), has_one=attend_one is not None),
    )


def track(config: TrackerConfig, attend: Graph, remember: Graph, name: str = "track") -> Graph:
    """One tracked frame: features [1, ...] and the memory of N objects -> masks and memories.

    As memory attention, `decode` without a prompt and the memory encoder, one after another.
    """
    builder, N = Builder(name), symbol("N")
    decode = graphs.decode_tracked(config)
    remember = fix_inputs(remember, {"binary": False})
    given = {value.name: builder.input(value.name, value.type) for value in attend.inputs}
    fine = {}
    for key in [key for key in config.feature_maps if key != "embedding"]:
        _, *shape = decode.input(key).type.shape
        single = builder.input(key, decode.input(key).type.reshaped((1, *shape)))
        fine[key] = ops.expand(single, N, *shape)
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
        "obeys_clicks": config.obeys_clicks,
        "labels": {
            "positive": 1,
            "negative": 0,
            "box_top_left": 2,
            "box_bottom_right": 3,
            "no_point": NO_POINT,
            "padding": ABSENT,
        },
        "mask_threshold": 0.0,
        "everything": {
            "pred_iou_thresh": config.everything_iou,
            "stability_score_thresh": config.everything_stability,
        },
        "absent_logit": graphs.HIDDEN_LOGIT,
        "absent_pointer": [float(x) for x in weights.get("no_obj_ptr", NONE).reshape(-1)],
        "mask_prompt_clamp": CLAMP,
        "mask_object_score": MASK_SCORE,
        "stability_delta": STABILITY_DELTA,
        "stability_wanted": STABILITY_WANTED,
    }

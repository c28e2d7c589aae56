"""The graphs of SAM 2. Each is traced once.

    image_encoder      image -> embedding and two high-resolution maps
    decode             embedding, points, mask -> masks, scores, object pointer
    memory_encoder     embedding, mask -> memory of a frame
    memory_attention   embedding, memories, pointers -> conditioned embedding
    mask_prompt        a full-size mask -> low-resolution logits and the mask prompt
    prepare_image      embedding -> the part of the decoder that is independent of the prompt
    decode_prepared    a prepared image, many points -> masks, scores
    decode_tracked     embedding that remembers -> the mask, scores and pointer of tracked objects
    decode_alternatives   the same, with all three masks and their pointers

Lengths that change from call to call are symbols: B images, N prompts or objects, P points,
F remembered frames, Q pointers. Shapes: C channels, E grid, S image size, L mask size.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from samgraph import ops
from samgraph.graph import Builder, Graph, Scope, Tensor, symbol
from samgraph.models.family import NO_POINT
from samgraph.models.sam2 import (
    mask_decoder,
    memory_encoder,
    prompts,
)
from samgraph.models.sam2.attention_graphs import (
    attend_bank,
    attend_memory,
    attend_prepared,
    prepare_frame,
)
from samgraph.models.sam2.config import Sam2Config
from samgraph.models.sam2.graph_set import GraphSet
from samgraph.models.sam2.hiera import hiera
from samgraph.models.sam2.layers import conv2d, to_tokens
from samgraph.models.sam2.memory_design import SAM2_MEMORY, MemoryDesign
from samgraph.models.sam2.neck import neck
from samgraph.models.sam2.tracker_config import TrackerConfig
from samgraph.passes.conv_transpose_to_linear import conv_transpose_to_linear
from samgraph.passes.fix_inputs import fix_inputs
from samgraph.passes.hoist_shared import hoist_shared

HIDDEN_LOGIT = -1024.0
# The inputs of `decode` that are the same for every object that is tracked.
_NO_PROMPT = {"points": 0.0, "labels": NO_POINT, "has_mask": False, "no_memory": False}


def image_encoder(config: Sam2Config) -> Graph:
    """image [B, 3, S, S], normalised -> embedding [B, C, E, E], fine_0, fine_1."""
    builder = Builder("image_encoder")
    S = config.image_size
    image = builder.input("image", f"f32[B,3,{S},{S}]")
    at = builder.scope()
    encoder = at / "image_encoder"
    maps = [x.transpose(0, 3, 1, 2) for x in hiera(encoder / "trunk", config, image)]
    return builder.finish(pyramid_features(at, config, neck(encoder / "neck", config, maps)))


def pyramid_features(at: Scope, config: TrackerConfig, levels: list[Tensor]) -> dict[str, Tensor]:
    """The feature maps of a pyramid, finest first: those of high resolution are projected."""
    decoder = at / "sam_mask_decoder"
    return {
        "embedding": levels[2],
        "fine_0": conv2d(decoder / "conv_s0", levels[0], config.channels // 8, 1),
        "fine_1": conv2d(decoder / "conv_s1", levels[1], config.channels // 4, 1),
    }


def decode(config: TrackerConfig) -> Graph:
    """Prompts on image features -> four masks, and the selected mask.

    Flags per prompt: `no_memory`, the embedding is unconditioned; `has_mask`, `mask` is a prompt;
    `multimask`, select one of masks 1 to 3. Outputs: masks, ious and stability of all four;
    object_score; best_mask (-1024 where the object is occluded or absent), best_iou and pointer of
    the selected mask.
    """
    builder = Builder("decode")
    decoded, multimask = _decoded(builder, config)
    return builder.finish(_answers(builder, config, decoded, multimask))


def decode_tracked(config: TrackerConfig) -> Graph:
    """`decode` for objects that are tracked: no prompt, an embedding that remembers, multimask.

    Outputs: object_score, best_mask, best_iou and pointer, as in `decode`.
    """
    answers = ("object_score", "best_mask", "best_iou", "pointer")
    graph = fix_inputs(decode(config), {**_NO_PROMPT, "multimask": True}, answers)
    return replace(graph, name="decode_tracked")


def decode_alternatives(config: TrackerConfig) -> Graph:
    """`decode_tracked` before it selects a mask, for policies that compare them.

    Outputs: object_score [N, 1], masks [N, 3, L, L] (-1024 where the object is occluded or absent),
    ious [N, 3] and pointers [N, 3, C] of masks 1 to 3.
    """
    builder = Builder("decode_alternatives")
    decoded, _ = _decoded(builder, config)
    at, C, N = builder.scope(), config.channels, symbol("N")
    seen = decoded.object_score > 0.0
    tokens = decoded.tokens[:, 1:].reshape(3 * N, C)
    pointers = mask_decoder.pointer(at, config, tokens).reshape(N, 3, C)
    absent = at.weight("no_obj_ptr", 1, C)[None]
    graph = builder.finish(
        object_score=decoded.object_score,
        masks=ops.where(seen.reshape(N, 1, 1, 1), decoded.masks[:, 1:], HIDDEN_LOGIT),
        ious=decoded.ious[:, 1:],
        pointers=ops.where(seen.reshape(N, 1, 1), pointers, absent),
    )
    return fix_inputs(graph, {**_NO_PROMPT, "multimask": True})


def _decoded(builder: Builder, config: TrackerConfig) -> tuple[mask_decoder.Decoded, Tensor]:
    """The four masks of prompts on image features, and the flag `multimask`."""
    C, L = config.channels, config.mask_size
    embedding, fine = _features(builder, config, "N")
    points = builder.input("points", "f32[N,P,2]")
    labels = builder.input("labels", "i64[N,P]")
    mask = builder.input("mask", f"f32[N,1,{L},{L}]")
    flags = {
        name: builder.input(name, "bool[N]") for name in ("has_mask", "no_memory", "multimask")
    }
    at = builder.scope()
    encoder = at / "sam_prompt_encoder"
    each = {name: flag.reshape(symbol("N"), 1, 1) for name, flag in flags.items()}
    no_memory = at.weight("no_mem_embed", 1, 1, C)
    dense = prompts.no_mask(encoder, config)
    dense = ops.where(each["has_mask"], to_tokens(prompts.mask(encoder, config, mask)), dense)
    image = to_tokens(embedding) + ops.where(each["no_memory"], no_memory, 0.0) + dense
    decoded = mask_decoder.decode(
        at / "sam_mask_decoder",
        config,
        image,
        fine,
        prompts.points(encoder, config, points, labels),
        prompts.dense_positions(encoder, config),
        prompts.padding_mask(labels, mask_decoder.OUTPUT_TOKENS),
    )
    return decoded, flags["multimask"]


def _answers(
    builder: Builder, config: TrackerConfig, decoded: mask_decoder.Decoded, multimask: Tensor
) -> dict[str, Tensor]:
    """The four masks, and the selected mask with its object pointer."""
    at, C, N = builder.scope(), config.channels, symbol("N")
    stability = mask_decoder.stability(decoded.masks)
    best = mask_decoder.best_index(decoded, multimask, stability)[:, None]
    seen = decoded.object_score > 0.0
    best_mask = ops.gather(decoded.masks, best, 1, batch=1)
    # As in the original, the pointer is that of mask 0 even where it is unstable and replaced.
    token_index = ops.where(multimask[:, None], best, 0)
    token = ops.gather(decoded.tokens, token_index, 1, batch=1)[:, 0]
    pointer = mask_decoder.pointer(at, config, token)
    return {
        "masks": decoded.masks,
        "ious": decoded.ious,
        "stability": stability,
        "object_score": decoded.object_score,
        "best_mask": ops.where(seen.reshape(N, 1, 1, 1), best_mask, HIDDEN_LOGIT),
        "best_iou": ops.gather(decoded.ious, best, 1, batch=1),
        "pointer": ops.where(seen, pointer, at.weight("no_obj_ptr", 1, C)),
    }


def decode_points(config: TrackerConfig) -> Graph:
    """Points on one still image, embedding [1, C, E, E] -> four masks for each of N prompts.

    As `decode` with `no_memory` and without `mask`; outputs masks, ious, stability, object_score.
    """
    builder = Builder("decode_points")
    embedding, fine = _features(builder, config, "1")
    points = builder.input("points", "f32[N,P,2]")
    labels = builder.input("labels", "i64[N,P]")
    at, N = builder.scope(), symbol("N")
    encoder = at / "sam_prompt_encoder"
    no_memory = at.weight("no_mem_embed", 1, 1, config.channels)
    image = to_tokens(embedding) + no_memory + prompts.no_mask(encoder, config)
    image, *maps = (ops.expand(x, N, *x.shape[1:]) for x in (image, *fine))
    decoded = mask_decoder.decode(
        at / "sam_mask_decoder",
        config,
        image,
        tuple(maps),
        prompts.points(encoder, config, points, labels),
        prompts.dense_positions(encoder, config),
        prompts.padding_mask(labels, mask_decoder.OUTPUT_TOKENS),
    )
    return builder.finish(
        masks=decoded.masks,
        ious=decoded.ious,
        stability=mask_decoder.stability(decoded.masks),
        object_score=decoded.object_score,
    )


def prepare_image(config: TrackerConfig) -> Graph:
    """The part of `decode_points` that depends on the image alone: run once per image."""
    return cut_decode_points(config)[0]


def decode_prepared(config: TrackerConfig) -> Graph:
    """The rest of `decode_points`: outputs of `prepare_image`, and points -> masks."""
    return cut_decode_points(config)[1]


def cut_decode_points(config: TrackerConfig) -> tuple[Graph, Graph]:
    """`decode_points` cut in two; the first reorders the high-resolution maps to upscaled cells."""
    graph = conv_transpose_to_linear(decode_points(config))
    return hoist_shared(graph, tuple(config.feature_maps), names=OF_ONE)


def _features(
    builder: Builder, config: TrackerConfig, count: str
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """The maps of the image encoder as inputs: the embedding, and those of high resolution."""
    maps = [
        builder.input(name, f"f32[{count},{','.join(map(str, shape))}]")
        for name, shape in config.feature_maps.items()
    ]
    return maps[0], tuple(maps[1:])


def mask_prompt(config: TrackerConfig) -> Graph:
    """A mask given instead of clicks: mask [N, 1, S, S] of 0 and 1.

    Outputs: logits [N, 1, L, L], plus or minus ten, to use as the result; and prompt
    [N, 1, L, L], from which the decoder computes the object pointer.
    """
    builder = Builder("mask_prompt")
    S, L = config.image_size, config.mask_size
    mask = builder.input("mask", f"f32[N,1,{S},{S}]")
    logits = mask * memory_encoder.MASK_SCALE + memory_encoder.MASK_SHIFT
    return builder.finish(
        logits=ops.resize(logits, (L, L), how="bilinear", antialias=True),
        prompt=prompts.enlarge(
            config, conv2d(builder.scope() / "mask_downsample", mask, 1, 4, stride=4)
        ),
    )


def encode_memory(
    config: TrackerConfig, images: str = "1", design: MemoryDesign = SAM2_MEMORY
) -> Graph:
    """embedding [1, C, E, E] of a frame, mask logits [N, 1, L, L] -> memory [N, T, 64].

    `binary` is a flag per object: the mask is from a prompted frame and is hardened first. With
    `images="N"` every object has its own frame, as in training.
    """
    builder = Builder("memory_encoder")
    C, E, S, L = config.channels, config.grid, config.image_size, config.mask_size
    N = symbol("N")
    embedding = builder.input("embedding", f"f32[{images},{C},{E},{E}]")
    mask = builder.input("mask", f"f32[N,1,{L},{L}]")
    score = builder.input("object_score", "f32[N,1]")
    binary = builder.input("binary", "bool[N]").reshape(N, 1, 1, 1)
    absent = ops.where(score > 0.0, 0.0, 1.0).reshape(N, 1, 1, 1)
    full = ops.resize(memory_encoder.steepen(mask, binary), (S, S), how="bilinear")
    full = memory_encoder.mask_for_memory(full)
    at = builder.scope()
    memory = memory_encoder.memory_encoder(at, config, embedding, full, absent)
    return builder.finish(memory=design.store(at, config, memory))


OF_ONE = ("prepare_image", "decode_prepared")  # both are cut from one graph


def unread(config: TrackerConfig) -> dict[str, tuple[int, ...]]:
    """Tensors of a checkpoint that no graph reads: `no_mem_embed` is added to features instead."""
    return {"no_mem_pos_enc": (1, 1, config.channels)}


def graph_set(
    image_encoder: Callable[[Any], Graph],
    design: MemoryDesign = SAM2_MEMORY,
    unread: Callable[[Any], Mapping[str, tuple[int, ...]]] = unread,
) -> GraphSet:
    """The graphs of a family with its own trunk and memory, and SAM 2's decoder."""
    traces: dict[str, Callable[[Any], Graph]] = {
        "image_encoder": image_encoder,
        "decode": decode,
        "memory_encoder": lambda config: encode_memory(config, design=design),
        "memory_attention": lambda config: attend_memory(config, design=design),
        "mask_prompt": mask_prompt,
        "prepare_image": prepare_image,
        "decode_prepared": decode_prepared,
    }
    # Memory attention over a bank's pages, by their dtype, and decode without prompts.
    tracking: dict[str, Callable[[Any], Graph]] = {
        "decode_tracked": decode_tracked,
        "decode_alternatives": decode_alternatives,
        "attend_bank": lambda config: attend_bank(config, design=design),
        "attend_bank_fp32": lambda config: attend_bank(config, "f32", design),
        # the same in two parts, for engines on the host
        "prepare_frame": lambda config: prepare_frame(config, design),
        "attend_prepared": lambda config: attend_prepared(config, design=design),
        "attend_prepared_fp32": lambda config: attend_prepared(config, "f32", design),
    }
    return GraphSet(traces, tracking, (OF_ONE, cut_decode_points), unread)


GRAPHS = graph_set(image_encoder)
TRACES, TRACKING_TRACES = GRAPHS.traces, GRAPHS.tracking


def trace_graphs(config: Sam2Config, names: Iterable[str] = TRACES) -> dict[str, Graph]:
    """Graphs by name; of two that are cut from one graph, both are included."""
    return GRAPHS.trace(config, names)


def weight_shapes(config: Sam2Config) -> dict[str, tuple[int, ...]]:
    """The name and shape of every tensor of a checkpoint for this config."""
    return GRAPHS.weight_shapes(config)

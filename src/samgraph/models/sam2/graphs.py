"""The graphs of SAM 2: four large ones, and small ones for mask prompts. Each is traced once.

    image_encoder      image -> embedding and two finer maps
    decode             embedding, points, mask -> masks, scores, object pointer
    memory_encoder     embedding, mask -> memory of a frame
    memory_attention   embedding, memories, pointers -> embedding that remembers
    mask_prompt        a full-size mask -> low-resolution logits and what the decoder reads
    prepare_image      embedding -> what the decoder wants of an image, whatever the prompt
    decode_prepared    a prepared image, many points -> masks, scores: clicks on a still image

Lengths that change from call to call are symbols: B images, N prompts or objects, P points,
F remembered frames, Q pointers. Shapes: C channels, E grid, S image size, L mask size.
"""

from collections.abc import Callable

from samgraph import ops
from samgraph.graph import Builder, Graph, Tensor, symbol
from samgraph.models.sam2 import (
    mask_decoder,
    memory_attention,
    memory_bank,
    memory_encoder,
    prompts,
    two_way,
)
from samgraph.models.sam2.config import Sam2Config
from samgraph.models.sam2.hiera import hiera
from samgraph.models.sam2.layers import conv2d, to_image, to_tokens
from samgraph.models.sam2.neck import neck
from samgraph.models.sam2.positions import sine_grid

HIDDEN_LOGIT = -1024.0


def image_encoder(config: Sam2Config) -> Graph:
    """image [B, 3, S, S], normalised -> embedding [B, C, E, E], fine_0, fine_1."""
    builder = Builder("image_encoder")
    S = config.image_size
    image = builder.input("image", f"f32[B,3,{S},{S}]")
    at = builder.scope()
    encoder = at / "image_encoder"
    levels = neck(encoder / "neck", config, hiera(encoder / "trunk", config, image))
    decoder = at / "sam_mask_decoder"
    return builder.finish(
        embedding=levels[2],
        fine_0=conv2d(decoder / "conv_s0", levels[0], config.channels // 8, 1),
        fine_1=conv2d(decoder / "conv_s1", levels[1], config.channels // 4, 1),
    )


def decode(config: Sam2Config) -> Graph:
    """Prompts on image features -> four masks, and the one that is the answer.

    `no_memory` says where the embedding comes straight from the encoder; `has_mask` where `mask`
    counts; `multimask` where the answer is to be one of masks 1 to 3. Outputs: masks, ious and
    stability of all four; object_score; best_mask (-1024 where the object is hidden), best_iou
    and pointer of the answer.
    """
    builder = Builder("decode")
    C, L = config.channels, config.mask_size
    embedding, fine_0, fine_1 = _features(builder, config, "N")
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
        mask_decoder.fine_cells(config, fine_0, fine_1),
        prompts.points(encoder, config, points, labels),
        prompts.dense_positions(encoder, config),
        prompts.hidden(labels, mask_decoder.OUTPUT_TOKENS),
    )
    return builder.finish(_answers(builder, config, decoded, flags["multimask"]))


def _answers(
    builder: Builder, config: Sam2Config, decoded: mask_decoder.Decoded, multimask: Tensor
) -> dict[str, Tensor]:
    """The four masks, and what tracking keeps of the best."""
    at, C, N = builder.scope(), config.channels, symbol("N")
    steadiness = mask_decoder.stability(decoded.masks)
    best = mask_decoder.best_place(decoded, multimask, steadiness)[:, None]
    seen = decoded.object_score > 0.0
    best_mask = ops.gather(decoded.masks, best, 1, batch=1)
    # Differs from nothing: when mask 0 is unstable, its token still makes the pointer.
    token_place = ops.where(multimask[:, None], best, 0)
    token = ops.gather(decoded.tokens, token_place, 1, batch=1)[:, 0]
    pointer = mask_decoder.pointer(at, config, token)
    return {
        "masks": decoded.masks,
        "ious": decoded.ious,
        "stability": steadiness,
        "object_score": decoded.object_score,
        "best_mask": ops.where(seen.reshape(N, 1, 1, 1), best_mask, HIDDEN_LOGIT),
        "best_iou": ops.gather(decoded.ious, best, 1, batch=1),
        "pointer": ops.where(seen, pointer, at.weight("no_obj_ptr", 1, C)),
    }


def prepare_image(config: Sam2Config) -> Graph:
    """What `encode_image` gives of still images -> what `decode_prepared` takes of each.

    Whatever does not depend on the prompt: the embedding with no memory and no mask added, as
    cells; its projections for the first layer of the decoder; the finer maps in the same order.
    """
    builder = Builder("prepare_image")
    embedding, fine_0, fine_1 = _features(builder, config, "B")
    at = builder.scope()
    encoder = at / "sam_prompt_encoder"
    no_memory = at.weight("no_mem_embed", 1, 1, config.channels)
    image = to_tokens(embedding) + no_memory + prompts.no_mask(encoder, config)
    projected = two_way.project(
        at / "sam_mask_decoder" / "transformer",
        config,
        image,
        prompts.dense_positions(encoder, config),
    )
    cells_0, cells_1 = mask_decoder.fine_cells(config, fine_0, fine_1)
    return builder.finish(
        image=image,
        keys=projected.keys,
        values=projected.values,
        queries=projected.queries,
        cells_0=cells_0,
        cells_1=cells_1,
    )


def decode_prepared(config: Sam2Config) -> Graph:
    """Points on one prepared image -> four masks for each of N prompts.

    As `decode` with `no_memory` and without `mask`; outputs masks, ious, stability, object_score.
    """
    builder = Builder("decode_prepared")
    C, cells = config.channels, config.grid**2
    image = builder.input("image", f"f32[1,{cells},{C}]")
    projected = two_way.Projected(
        *(builder.input(name, f"f32[1,{cells},{C // 2}]") for name in ("keys", "values", "queries"))
    )
    fine_0 = builder.input("cells_0", f"f32[1,{16 * cells},{C // 8}]")
    fine_1 = builder.input("cells_1", f"f32[1,{4 * cells},{C // 4}]")
    points = builder.input("points", "f32[N,P,2]")
    labels = builder.input("labels", "i64[N,P]")
    at = builder.scope()
    encoder = at / "sam_prompt_encoder"
    decoded = mask_decoder.decode(
        at / "sam_mask_decoder",
        config,
        image,
        (fine_0, fine_1),
        prompts.points(encoder, config, points, labels),
        prompts.dense_positions(encoder, config),
        prompts.hidden(labels, mask_decoder.OUTPUT_TOKENS),
        projected,
    )
    return builder.finish(
        masks=decoded.masks,
        ious=decoded.ious,
        stability=mask_decoder.stability(decoded.masks),
        object_score=decoded.object_score,
    )


def _features(builder: Builder, config: Sam2Config, count: str) -> tuple[Tensor, Tensor, Tensor]:
    """The three maps of the image encoder as inputs: embedding, fine_0, fine_1."""
    C, E, L = config.channels, config.grid, config.mask_size
    return (
        builder.input("embedding", f"f32[{count},{C},{E},{E}]"),
        builder.input("fine_0", f"f32[{count},{C // 8},{L},{L}]"),
        builder.input("fine_1", f"f32[{count},{C // 4},{2 * E},{2 * E}]"),
    )


def mask_prompt(config: Sam2Config) -> Graph:
    """A mask given instead of clicks: mask [N, 1, S, S] of 0 and 1.

    Outputs: logits [N, 1, L, L], plus or minus ten, which stand as the answer; and prompt
    [N, 1, L, L], which the decoder reads to make a pointer.
    """
    builder = Builder("mask_prompt")
    S, L = config.image_size, config.mask_size
    mask = builder.input("mask", f"f32[N,1,{S},{S}]")
    logits = mask * memory_encoder.MASK_SCALE + memory_encoder.MASK_SHIFT
    return builder.finish(
        logits=ops.resize(logits, (L, L), how="bilinear", antialias=True),
        prompt=conv2d(builder.scope() / "mask_downsample", mask, 1, 4, stride=4),
    )


def encode_memory(config: Sam2Config, images: str = "1") -> Graph:
    """embedding [1, C, E, E] of a frame, mask logits [N, 1, L, L] -> memory [N, E*E, 64].

    `binary` says where the mask came from clicks and is hardened first. With `images="N"` every
    object is on a frame of its own, as in training.
    """
    builder = Builder("memory_encoder")
    C, E, S, L = config.channels, config.grid, config.image_size, config.mask_size
    N = symbol("N")
    embedding = builder.input("embedding", f"f32[{images},{C},{E},{E}]")
    mask = builder.input("mask", f"f32[N,1,{L},{L}]")
    score = builder.input("object_score", "f32[N,1]")
    binary = builder.input("binary", "bool[N]").reshape(N, 1, 1, 1)
    hidden = ops.where(score > 0.0, 0.0, 1.0).reshape(N, 1, 1, 1)
    full = ops.resize(memory_encoder.steepen(mask, binary), (S, S), how="bilinear")
    full = memory_encoder.mask_for_memory(full)
    memory = memory_encoder.memory_encoder(builder.scope(), config, embedding, full, hidden)
    return builder.finish(memory=to_tokens(memory))


def attend_memory(config: Sam2Config, images: str = "1") -> Graph:
    """embedding [1, C, E, E] and what each object remembers -> embedding [N, C, E, E].

    memory [N, F, E*E, 64]; slots [N, F], the row of the time table for each frame; pointers
    [N, Q, C]; pointer_times [N, Q], distances in frames over the longest. Q may be zero. With
    `images="N"` every object is on a frame of its own.
    """
    builder = Builder("memory_attention")
    C, E, T = config.channels, config.grid, config.grid**2
    N, F = symbol("N"), symbol("F")
    embedding = builder.input("embedding", f"f32[{images},{C},{E},{E}]")
    frames = builder.input("memory", f"f32[N,F,{T},{config.memory_channels}]")
    slots = builder.input("slots", "i64[N,F]")
    pointers = builder.input("pointers", f"f32[N,Q,{C}]")
    times = builder.input("pointer_times", "f32[N,Q]")
    at = builder.scope()
    tokens = memory_bank.pointer_tokens(config, pointers)
    memory = ops.concat([frames.reshape(N, F * T, config.memory_channels), tokens], axis=1)
    position = ops.concat(
        [
            memory_bank.frame_positions(at, config, slots),
            memory_bank.pointer_positions(at, config, times),
        ],
        axis=1,
    )
    place = builder.constant(sine_grid(C, E, E).reshape(1, C, T).transpose(0, 2, 1))
    current = memory_attention.with_position(to_tokens(embedding), place)
    x = memory_attention.memory_attention(
        at / "memory_attention",
        config,
        current,
        memory,
        position,
        tokens.shape[1],
    )
    return builder.finish(embedding=to_image(x, E, E))


TRACES: dict[str, Callable[[Sam2Config], Graph]] = {
    "image_encoder": image_encoder,
    "decode": decode,
    "memory_encoder": encode_memory,
    "memory_attention": attend_memory,
    "mask_prompt": mask_prompt,
    "prepare_image": prepare_image,
    "decode_prepared": decode_prepared,
}
# In the checkpoints, and read by nothing: SAM 2 adds `no_mem_embed` to the features instead.
UNREAD = ("no_mem_pos_enc",)


def weight_shapes(config: Sam2Config) -> dict[str, tuple[int, ...]]:
    """The name and shape of every tensor of a checkpoint for this config."""
    shapes: dict[str, tuple[int, ...]] = {}
    for trace in TRACES.values():
        for value in trace(config).params:
            shapes[value.name] = value.type.lengths
    return shapes | dict.fromkeys(UNREAD, (1, 1, config.channels))

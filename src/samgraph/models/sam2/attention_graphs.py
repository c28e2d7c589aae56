"""The graphs of memory attention: a frame conditioned on what objects remember.

    memory_attention   embedding, memories, pointers -> conditioned embedding
    attend_bank        the same over the pages of a memory bank
    prepare_frame      the part of `attend_bank` that depends on the frame alone
    attend_prepared    the rest of it

N objects, F remembered frames, Q pointers; C channels, E grid, T memory tokens of a frame, P pages.
"""

from samgraph import ops
from samgraph.graph import Builder, Dim, Graph, Tensor, symbol
from samgraph.models.sam2 import memory_attention, memory_bank
from samgraph.models.sam2.layers import to_image, to_tokens
from samgraph.models.sam2.memory_attention import Attend
from samgraph.models.sam2.memory_design import SAM2_MEMORY, MemoryDesign, Recalled
from samgraph.models.sam2.positions import token_positions
from samgraph.models.sam2.tracker_config import TrackerConfig
from samgraph.passes.hoist_shared import hoist_shared


def attend_memory(
    config: TrackerConfig, images: str = "1", design: MemoryDesign = SAM2_MEMORY
) -> Graph:
    """embedding [1, C, E, E] and the memory of each object -> embedding [N, C, E, E].

    memory [N, F, T, 64]; slots [N, F], the row of the temporal position encoding of each frame;
    pointers [N, Q, C]; pointer_times [N, Q], distances in frames over the longest. Q may be zero.
    With `images="N"` every object has its own frame.
    """
    builder = Builder("memory_attention")
    C, T, F = config.channels, config.memory_tokens, _frames(config)
    embedding = _embedding(builder, config, images)
    frames = builder.input("memory", f"f32[N,{F},{T},{config.memory_channels}]")
    slots = builder.input("slots", f"i64[N,{F}]")
    pointers = builder.input("pointers", f"f32[N,Q,{C}]")
    times = builder.input("pointer_times", "f32[N,Q]")
    recalled = design.recall(builder.scope(), config, frames, slots)
    attended = _attended(builder, config, embedding, recalled, pointers, times, design.attend)
    return builder.finish(embedding=attended)


def attend_bank(
    config: TrackerConfig, stored: str = "bf16", design: MemoryDesign = SAM2_MEMORY
) -> Graph:
    """`attend_memory` over the pages of a memory bank, gathered inside the graph.

    pages [P, T, 64] as stored; frames [N, F], the page of each remembered frame; pointer_rows
    [R, C]; pointers [N, Q], the row of each pointer. The rest as in `attend_memory`.
    """
    builder = Builder("attend_bank")
    C, T = config.channels, config.memory_tokens
    embedding = _embedding(builder, config, "1")
    pages = builder.input("pages", f"{stored}[P,{T},{config.memory_channels}]")
    frames = builder.input("frames", f"i64[N,{_frames(config)}]")
    slots = builder.input("slots", f"i64[N,{_frames(config)}]")
    rows = builder.input("pointer_rows", f"f32[R,{C}]")
    pointers = builder.input("pointers", "i64[N,Q]")
    times = builder.input("pointer_times", "f32[N,Q]")
    memory = ops.gather(pages, frames, 0)
    if stored != "f32":
        memory = ops.cast(memory, "f32")
    gathered = ops.gather(rows, pointers, 0)
    recalled = design.recall(builder.scope(), config, memory, slots)
    attended = _attended(builder, config, embedding, recalled, gathered, times, design.attend)
    return builder.finish(embedding=attended)


def prepare_frame(config: TrackerConfig, design: MemoryDesign = SAM2_MEMORY) -> Graph:
    """The part of `attend_bank` that depends on the frame alone: run once for all its objects."""
    return _bank_prepared(config, "bf16", design)[0]


def attend_prepared(
    config: TrackerConfig, stored: str = "bf16", design: MemoryDesign = SAM2_MEMORY
) -> Graph:
    """The rest of `attend_bank`: outputs of `prepare_frame`, and the memory of each object."""
    return _bank_prepared(config, stored, design)[1]


def _bank_prepared(config: TrackerConfig, stored: str, design: MemoryDesign) -> tuple[Graph, Graph]:
    names = "prepare_frame", "attend_prepared"
    return hoist_shared(attend_bank(config, stored, design), ("embedding",), names=names)


def _frames(config: TrackerConfig) -> Dim:
    """The number of remembered frames: a symbol, or 1 without `rope_k_repeat`."""
    return symbol("F") if config.rope_k_repeat else 1


def _embedding(builder: Builder, config: TrackerConfig, images: str) -> Tensor:
    C, E = config.channels, config.grid
    return builder.input("embedding", f"f32[{images},{C},{E},{E}]")


def _attended(
    builder: Builder,
    config: TrackerConfig,
    embedding: Tensor,
    recalled: Recalled,
    pointers: Tensor,
    times: Tensor,
    attend: Attend,
) -> Tensor:
    """Memory attention from recalled frames and pointers [N, Q, C]."""
    E, at = config.grid, builder.scope()
    frames, frame_position, unrotated = recalled
    tokens = memory_bank.pointer_tokens(config, pointers)
    memory = ops.concat([frames, tokens], axis=1)
    pointer_position = memory_bank.pointer_positions(at, config, times)
    position = ops.concat([frame_position, pointer_position], axis=1)
    grid_position = builder.constant(token_positions(config.channels, E)[None])
    x = memory_attention.memory_attention(
        at / "memory_attention",
        config,
        to_tokens(embedding),
        grid_position,
        memory,
        position,
        tokens.shape[1] + unrotated,
        attend,
    )
    return to_image(x, E, E)

"""The memory as tokens: frames with their position and time, pointers with their time.

The slot of a remembered frame is its row of the temporal position encoding: `memory_frames - 1` for
every conditioning frame, t - 1 for the frame t steps back. An object pointer of 256 channels is
split into four tokens of 64, whose position is its distance in time, scaled to 0..1 (SAM 2.1).

Shapes: N objects, F frames, T cells of the grid, Q pointers.
"""

import numpy as np

from samgraph import ops
from samgraph.errors import InputError
from samgraph.graph import Array, Dim, Scope, Tensor
from samgraph.graph.dims import floor_divide
from samgraph.models.sam2.layers import linear
from samgraph.models.sam2.positions import sine_time
from samgraph.models.sam2.tracker_config import TrackerConfig


def check_slots(config: TrackerConfig, slots: Array) -> None:
    """Raise `InputError` for slots [N, F] out of range, which graphs do not check."""
    outside = (slots < 0) | (slots >= config.memory_frames)
    if np.any(outside):
        raise InputError(
            "a remembered frame has a slot that does not exist",
            got=int(slots[outside][0]),
            expected=f"0 to {config.memory_frames - 1}",
        )


def frame_positions(
    at: Scope, config: TrackerConfig, slots: Tensor, position: Array | None = None
) -> Tensor:
    """Position and time of every remembered token: slots [N, F] -> [N, F*T, 64].

    `position` [T, 64] is that of the tokens of a frame, by default the config's.
    """
    N, F = slots.shape
    C = config.memory_channels
    if position is None:
        position = config.memory_positions()
    times = at.weight("maskmem_tpos_enc", config.memory_frames, 1, 1, C)
    table = times.reshape(config.memory_frames, C)
    tagged = ops.gather(table, slots, 0).reshape(N, F, 1, C) + position[None, None]
    return tagged.reshape(N, F * len(position), C)


def pooled_tokens(config: TrackerConfig, tokens: Dim, side: int | None = None) -> Dim:
    """How many of these tokens of frames are averages: all but those of the last frame.

    `side` is that of the grid of a frame's tokens, by default the config's.
    """
    return 0 if config.memory_pool == 1 else tokens - (side or config.grid) ** 2


def pool_frames(config: TrackerConfig, tokens: Tensor, side: int | None = None) -> Tensor:
    """Frames but the last averaged over 2 x 2 cells: [N, F*T, C] -> [N, (F-1)*T/4 + T, C].

    Without `memory_pool` the tokens themselves. `side` as in `pooled_tokens`.
    """
    M, side = tokens.shape[1], side or config.grid
    older = M - side**2
    if config.memory_pool == 1 or older == 0:
        return tokens
    averages = average_cells(ops.slice_along(tokens, 1, 0, older), side)
    return ops.concat([averages, ops.slice_along(tokens, 1, older, M)], axis=1)


def average_cells(cells: Tensor, side: int) -> Tensor:
    """Whole frames of `side` x `side` cells averaged over 2 x 2 of them: [N, M, C] -> [N, M/4, C].

    A quarter of the tokens has the weight of all in attention with ln 4 more in its scores.
    """
    N, M, C = cells.shape
    rows, half = floor_divide(M, 2 * side), side // 2
    pairs = ops.reduce(cells.reshape(N, rows, 2, 2 * half * C), (2,), how="mean")
    return ops.reduce(pairs.reshape(N, rows * half, 2, C), (2,), how="mean")


def pointer_tokens(config: TrackerConfig, pointers: Tensor) -> Tensor:
    """[N, Q, C] -> [N, 4*Q, 64]."""
    N, Q, _ = pointers.shape
    return pointers.reshape(N, Q * tokens_per_pointer(config), config.memory_channels)


def pointer_positions(at: Scope, config: TrackerConfig, times: Tensor) -> Tensor:
    """The encoded time of each pointer token: times [N, Q] -> [N, 4*Q, 64]."""
    N, Q = times.shape
    split, C = tokens_per_pointer(config), config.memory_channels
    if not config.pointer_time:
        return ops.expand(at.builder.constant(0.0, "f32"), N, Q * split, C)
    if config.project_pointer_time:
        encoded = linear(at / "obj_ptr_tpos_proj", sine_time(times, config.channels), C)
    else:
        encoded = sine_time(times, C)
    repeated = ops.expand(encoded[:, :, None], N, Q, split, C)
    return repeated.reshape(N, Q * split, C)


def tokens_per_pointer(config: TrackerConfig) -> int:
    """The number of memory tokens per pointer."""
    return config.channels // config.memory_channels

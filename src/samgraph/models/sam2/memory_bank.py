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
from samgraph.models.sam2.config import Sam2Config
from samgraph.models.sam2.layers import linear
from samgraph.models.sam2.positions import sine_grid, sine_time


def check_slots(config: Sam2Config, slots: Array) -> None:
    """Raise `InputError` for slots [N, F] out of range, which graphs do not check."""
    outside = (slots < 0) | (slots >= config.memory_frames)
    if np.any(outside):
        raise InputError(
            "a remembered frame has a slot that does not exist",
            got=int(slots[outside][0]),
            expected=f"0 to {config.memory_frames - 1}",
        )


def frame_positions(at: Scope, config: Sam2Config, slots: Tensor) -> Tensor:
    """Position and time of every remembered token: slots [N, F] -> [N, F*T, 64]."""
    N, F = slots.shape
    side, C = config.grid, config.memory_channels
    times = at.weight("maskmem_tpos_enc", config.memory_frames, 1, 1, C)
    table = times.reshape(config.memory_frames, C)
    position = sine_grid(C, side, side).reshape(C, side * side).T[None, None]
    tagged = ops.gather(table, slots, 0).reshape(N, F, 1, C) + position
    return tagged.reshape(N, F * (side * side), C)


def pooled_tokens(config: Sam2Config, frames: Dim) -> Dim:
    """The number of tokens of pooled frames: a quarter of the tokens of all frames but the last."""
    return 0 if config.memory_pool == 1 else (frames - 1) * (config.grid**2 // 4)


def pool_frames(config: Sam2Config, tokens: Tensor) -> Tensor:
    """Frames but the last averaged over 2 x 2 cells: [N, F*T, C] -> [N, (F-1)*T/4 + T, C].

    Without `memory_pool` the tokens themselves.
    """
    N, M, C = tokens.shape
    side, area = config.grid, config.grid**2
    frames, older = floor_divide(M, area), M - area
    count = pooled_tokens(config, frames)
    if count == 0:
        return tokens
    cells = ops.slice_along(tokens, 1, 0, older)
    cells = cells.reshape(N, frames - 1, side // 2, 2, side // 2, 2, C)
    averages = ops.reduce(cells, (3, 5), how="mean").reshape(N, count, C)
    return ops.concat([averages, ops.slice_along(tokens, 1, older, M)], axis=1)


def pointer_tokens(config: Sam2Config, pointers: Tensor) -> Tensor:
    """[N, Q, C] -> [N, 4*Q, 64]."""
    N, Q, _ = pointers.shape
    return pointers.reshape(N, Q * tokens_per_pointer(config), config.memory_channels)


def pointer_positions(at: Scope, config: Sam2Config, times: Tensor) -> Tensor:
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


def tokens_per_pointer(config: Sam2Config) -> int:
    """The number of memory tokens per pointer."""
    return config.channels // config.memory_channels

"""Faults of memory encoder and memory attention."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from samgraph import ops
from samgraph.graph import Array, Scope, Tensor
from samgraph.models.sam2 import (
    memory_attention,
    memory_bank,
    memory_design,
    memory_encoder,
    tracker_config,
)
from samgraph.models.sam2.config import Sam2Config
from samgraph.ops import OPS
from tests.models.sam2.faults.planting import Patch, fault, resize_otherwise, wrap

# The memory encoder.


def _hidden(patch: Patch, change: Callable[[Tensor], Tensor]) -> None:
    def encode(
        original: Any, at: Scope, config: Sam2Config, image: Tensor, mask: Tensor, hidden: Tensor
    ) -> Any:
        return original(at, config, image, mask, change(hidden))

    wrap(patch, memory_encoder, "memory_encoder", encode)


@fault("memory_encoder")
def the_embedding_of_hidden_objects_for_all(patch: Patch) -> None:
    _hidden(patch, lambda hidden: hidden * 0.0 + 1.0)


@fault("memory_encoder")
def the_embedding_of_hidden_objects_for_none(patch: Patch) -> None:
    _hidden(patch, lambda hidden: hidden * 0.0)


@fault("memory_encoder")
def masks_from_0_to_1_in_memory(patch: Patch) -> None:
    patch.setattr(memory_encoder, "MASK_SCALE", 1.0)
    patch.setattr(memory_encoder, "MASK_SHIFT", 0.0)


@fault("memory_encoder")
def masks_from_0_to_20_in_memory(patch: Patch) -> None:
    patch.setattr(memory_encoder, "MASK_SHIFT", 0.0)


@fault("memory_encoder")
def prompted_masks_not_hardened(patch: Patch) -> None:
    def soft(original: Any, logits: Tensor, binary: Tensor) -> Any:
        return original(logits, binary != binary)

    wrap(patch, memory_encoder, "steepen", soft)


@fault("memory_encoder")
def a_fuser_without_its_shortcut(patch: Patch) -> None:
    wrap(
        patch,
        memory_encoder,
        "fuse",
        lambda original, at, config, x: original(at, config, x) - x,
    )


@fault("wiring:memory_encoder")
def masks_enlarged_to_blocks_for_memory(patch: Patch) -> None:
    resize_otherwise(patch, "bilinear", "nearest")


# Memory attention.


def _rope(patch: Patch, change: Callable[..., Array]) -> None:
    op = OPS["axial_rope"]

    def rotated(x: Array, **named: Any) -> Array:
        return change(op.reference, x, **named)

    patch.setitem(OPS, "axial_rope", replace(op, reference=rotated))


@fault("memory_attention:b")
def rope_interleaved_over_frames(patch: Patch) -> None:
    """Each position repeated for all frames, not the whole grid for each frame."""

    def rotated(reference: Any, x: Array, *, grid: tuple[int, int], **named: Any) -> Array:
        cells = grid[0] * grid[1]
        frames = (x.shape[-2] - named["unrotated"]) // cells
        order = np.arange(frames * cells).reshape(cells, frames).T.reshape(-1)
        order = np.concatenate([order, np.arange(frames * cells, x.shape[-2])])
        y: Array = reference(x[..., order, :], grid=grid, **named)
        return y[..., np.argsort(order), :]

    _rope(patch, rotated)


@fault("memory_attention:b")
def pointers_turned_too(patch: Patch) -> None:
    def rotated(reference: Any, x: Array, *, grid: tuple[int, int], **named: Any) -> Array:
        cells, unrotated = grid[0] * grid[1], named.pop("unrotated")
        missing = np.zeros((*x.shape[:-2], (cells - unrotated) % cells, x.shape[-1]), x.dtype)
        whole = np.concatenate([x, missing], axis=-2)
        y: Array = reference(whole, grid=grid, unrotated=0, **named)
        return y[..., : x.shape[-2], :]

    _rope(patch, rotated)


@fault("memory_attention:a")
def rows_turned_before_columns(patch: Patch) -> None:
    def rotated(reference: Any, x: Array, **named: Any) -> Array:
        half = x.shape[-1] // 2
        order = np.r_[half : 2 * half, 0:half]
        y: Array = reference(x[..., order], **named)
        return y[..., np.argsort(order)]

    _rope(patch, rotated)


@fault("memory_attention:a")
def halves_turned_in_place_of_neighbours(patch: Patch) -> None:
    def rotated(reference: Any, x: Array, **named: Any) -> Array:
        order = np.arange(x.shape[-1]).reshape(2, -1).T.reshape(-1)
        y: Array = reference(x[..., order], **named)
        return y[..., np.argsort(order)]

    _rope(patch, rotated)


@fault("memory_attention:a")
def another_rope_theta(patch: Patch) -> None:
    _rope(patch, lambda reference, x, **named: reference(x, **named | {"theta": 1000.0}))


def _cross(patch: Patch, change: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]) -> None:
    def project(
        original: Any, at: Scope, config: Sam2Config, q: Tensor, k: Tensor, v: Tensor
    ) -> Any:
        return original(at, config, q, *change(k, v))

    wrap(patch, memory_attention, "project", project)  # in self-attention k and v are equal


@fault("memory_attention:b")
def values_with_positions_in_memory_attention(patch: Patch) -> None:
    _cross(patch, lambda k, _: (k, k))


@fault("memory_attention:b")
def keys_without_positions_in_memory_attention(patch: Patch) -> None:
    _cross(patch, lambda _, v: (v, v))


@fault("memory_attention:a")
def the_whole_position_of_the_frame(patch: Patch) -> None:
    patch.setattr(memory_attention, "_POSITION_SHARE", 1.0)


@fault("memory_attention:a")
def gelu_in_memory_attention(patch: Patch) -> None:
    patch.setattr(ops, "relu", ops.gelu)


@fault("pointer_times", "wiring:memory_attention")
def pointer_times_of_the_other_sign(patch: Patch) -> None:
    wrap(
        patch,
        memory_bank,
        "pointer_positions",
        lambda original, at, config, times: original(at, config, times * -1.0),
    )


@fault("pointer_times")
def pointer_times_in_alternating_sines(patch: Patch) -> None:
    def encode(original: Any, times: Tensor, channels: int) -> Tensor:
        N, Q = times.shape
        pairs = original(times, channels).reshape(N, Q, 2, channels // 2)
        alternating: Tensor = pairs.transpose(0, 1, 3, 2).reshape(N, Q, channels)
        return alternating

    wrap(patch, memory_bank, "sine_time", encode)


@fault("wiring:memory_attention")
def slots_off_by_one(patch: Patch) -> None:
    def frames(original: Any, at: Scope, config: Sam2Config, slots: Tensor) -> Any:
        last = config.memory_frames - 1
        return original(at, config, ops.where(slots == last, 0, slots + 1))

    wrap(patch, memory_design, "frame_positions", frames)


@fault("wiring:memory_attention")
def frames_without_their_place(patch: Patch) -> None:
    wrap(patch, tracker_config, "token_positions", lambda original, *given: original(*given) * 0)


@fault("wiring:memory_attention")
def pointers_cut_across(patch: Patch) -> None:
    """Channels dealt out to the tokens of a pointer in turn, not in four runs."""

    def tokens(original: Any, config: Sam2Config, pointers: Tensor) -> Tensor:
        N, Q, _ = pointers.shape
        split, C = memory_bank.tokens_per_pointer(config), config.memory_channels
        return pointers.reshape(N, Q, C, split).transpose(0, 1, 3, 2).reshape(N, Q * split, C)

    wrap(patch, memory_bank, "pointer_tokens", tokens)

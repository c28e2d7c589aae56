"""Mistakes that ports of SAM 2 have made, or could make. Each is planted by patching the model.

A fault names the parts whose comparison must find it: keys of `components.PARTS`, or a graph of
`wiring`. Most are planted on the functions the model is made of, some on the ops it is written
in, and those of rotary encoding on the op's meaning itself, which the reference engine runs.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from samgraph import ops
from samgraph.graph import Array, Builder, Dim, Scope, Tensor
from samgraph.ops import OPS
from samgraph.sam2 import (
    graphs,
    hiera,
    mask_decoder,
    memory_attention,
    memory_bank,
    memory_encoder,
    positions,
    prompts,
    two_way,
)
from samgraph.sam2.config import Sam2Config
from samgraph.sam2.layers import conv2d, layer_norm, linear, mlp, width
from samgraph.sam2.windows import partition, unpartition

Patch = pytest.MonkeyPatch
Plant = Callable[[Patch], None]


@dataclass(frozen=True, slots=True)
class Fault:
    """What is planted, and where it must show."""

    plant: Plant
    parts: tuple[str, ...]
    config: str


FAULTS: dict[str, Fault] = {}


def fault(*parts: str, config: str = "test") -> Callable[[Plant], Plant]:
    """Register a fault under the name of its function."""

    def register(plant: Plant) -> Plant:
        FAULTS[plant.__name__] = Fault(plant, parts, config)
        return plant

    return register


def wrap(patch: Patch, place: Any, name: str, change: Callable[..., Any]) -> None:
    """Replace a function by `change(original, *arguments)`."""
    original = getattr(place, name)

    def changed(*arguments: Any, **named: Any) -> Any:
        return change(original, *arguments, **named)

    patch.setattr(place, name, changed)


# The trunk: `test2` has windows that do not divide the map, and two heads.


def _plan(patch: Patch, window: Callable[[Sam2Config, int, bool], int], *, globals_: bool) -> None:
    def plan(config: Sam2Config) -> list[tuple[int, int, bool]]:
        found: list[tuple[int, int, bool]] = []
        for stage, count in enumerate(config.stages):
            for i in range(count):
                pools = stage > 0 and i == 0
                is_global = globals_ and len(found) in config.global_blocks
                found.append((stage, 0 if is_global else window(config, stage, pools), pools))
        return found

    patch.setattr(hiera, "block_plan", plan)


@fault("encoder", config="test2")
def windows_of_the_next_stage(patch: Patch) -> None:
    _plan(
        patch,
        lambda config, stage, pools: config.windows[stage if pools else min(stage + 1, 3)],
        globals_=True,
    )


@fault("encoder")
def pooling_blocks_with_the_new_window(patch: Patch) -> None:
    _plan(patch, lambda config, stage, _: config.windows[min(stage, 2)], globals_=True)


@fault("encoder", config="test2")
def global_blocks_in_windows(patch: Patch) -> None:
    _plan(
        patch,
        lambda config, stage, pools: config.windows[stage - 1 if pools else stage],
        globals_=False,
    )


@fault("encoder", config="test2")
def padding_after_the_projection(patch: Patch) -> None:
    """Padded tokens have keys and values of zero, not of the bias."""

    def attention(
        at: Scope, x: Tensor, channels: int, heads: int, window: int, pools: bool
    ) -> Tensor:
        H, W = width(x, 1), width(x, 2)
        h, w = (window, window) if window else (H, W)
        qkv = partition(linear(at / "qkv", x, 3 * channels), h, w)
        q, k, v = (qkv[..., i * channels : (i + 1) * channels] for i in range(3))
        tokens = h * w
        if pools:
            q, h, w, H, W = hiera.pool(q), h // 2, w // 2, H // 2, W // 2
        q = q.reshape(-1, h * w, channels)
        k, v = (y.reshape(-1, tokens, channels) for y in (k, v))
        y = ops.attention(q, k, v, heads=heads, scale=(channels // heads) ** -0.5)
        y = linear(at / "proj", y, channels)
        return unpartition(y.reshape(-1, h, w, channels), x.shape[0], H, W)

    patch.setattr(hiera, "windowed_attention", attention)


@fault("encoder", config="test2")
def a_shortcut_from_the_input_before_its_norm(patch: Patch) -> None:
    def block(
        at: Scope, x: Tensor, channels: int, heads: int, window: int, pools: bool, ratio: int
    ) -> Tensor:
        normal = layer_norm(at / "norm1", x, eps=1e-6)
        shortcut = hiera.pool(linear(at / "proj", x, channels)) if pools else x
        x = shortcut + hiera.windowed_attention(
            at / "attn", normal, channels, heads, window, pools
        )
        hidden = layer_norm(at / "norm2", x, eps=1e-6)
        return x + mlp(at / "mlp", hidden, (channels * ratio, channels), gelu=True)

    patch.setattr(hiera, "block", block)


@fault("encoder", config="test2")
def pooling_by_the_mean(patch: Patch) -> None:
    def reduce(original: Any, x: Tensor, axes: Any, *, how: str, **named: Any) -> Tensor:
        result: Tensor = original(x, axes, how="mean" if how == "max" else how, **named)
        return result

    wrap(patch, ops, "reduce", reduce)


@fault("encoder", config="test2")
def as_many_heads_in_every_stage(patch: Patch) -> None:
    def block(original: Any, at: Scope, x: Tensor, channels: int, _: int, *rest: Any) -> Any:
        return original(at, x, channels, 2, *rest)

    wrap(patch, hiera, "block", block)


@fault("encoder", config="test2")
def scores_scaled_by_the_whole_width(patch: Patch) -> None:
    def attention(original: Any, *inputs: Tensor, heads: int, scale: float) -> Any:
        return original(*inputs, heads=heads, scale=scale * heads**-0.5)

    wrap(patch, ops, "attention", attention)


@fault("encoder", config="test2")
def a_background_enlarged_linearly(patch: Patch) -> None:
    _resize(patch, "bicubic", "bilinear")


@fault("encoder", "memory_encoder")
def gelu_by_its_tanh_formula(patch: Patch) -> None:
    def gelu(x: Tensor) -> Tensor:
        inner = (x + x * x * x * 0.044715) * (2 * (2 / np.pi) ** 0.5)
        return x * ops.sigmoid(inner)

    patch.setattr(ops, "gelu", gelu)


@fault("quiet")
def the_norm_of_attention_in_the_trunk(patch: Patch) -> None:
    patch.setattr(hiera, "_EPS", 1e-5)


@fault("quiet")
def the_norm_of_the_trunk_in_memory_attention(patch: Patch) -> None:
    patch.setattr(memory_attention, "_EPS", 1e-6)


@fault("quiet")
def the_norm_of_the_trunk_in_the_decoder(patch: Patch) -> None:
    patch.setattr(two_way, "_EPS", 1e-6)


# The neck.


def _resize(patch: Patch, before: str, after: str) -> None:
    def resize(original: Any, x: Tensor, size: Any, *, how: str, **named: Any) -> Any:
        return original(x, size, how=after if how == before else how, **named)

    wrap(patch, ops, "resize", resize)


@fault("encoder", config="test2")
def no_features_from_above(patch: Patch) -> None:
    def resize(original: Any, x: Tensor, size: Any, *, how: str, **named: Any) -> Any:
        y = original(x, size, how=how, **named)
        return y * 0.0 if how == "nearest" else y

    wrap(patch, ops, "resize", resize)


@fault("encoder", config="test2")
def features_from_above_smoothed(patch: Patch) -> None:
    _resize(patch, "nearest", "bilinear")


@fault("image_encoder", config="test2")
def features_from_above_on_every_level(patch: Patch) -> None:
    def neck(original: Any, at: Scope, config: Sam2Config, maps: list[Tensor]) -> list[Tensor]:
        levels: list[Tensor] = original(at, config, maps)
        for i in (1, 0):
            side = width(levels[i], 2)
            levels[i] = levels[i] + ops.resize(levels[i + 1], (side, side), how="nearest")
        return levels

    wrap(patch, graphs, "neck", neck)


@fault("tables")
def sine_positions_that_count_from_zero(patch: Patch) -> None:
    def sines(original: Any, channels: int, length: int) -> Array:
        table: Array = original(channels, length)
        return np.concatenate([table[:1] * 0, table[:-1]])

    wrap(patch, positions, "_sines", sines)


# Prompts.


def _label(patch: Patch, change: Callable[[Tensor], Tensor]) -> None:
    def embed(original: Any, at: Scope, config: Sam2Config, xy: Tensor, labels: Tensor) -> Any:
        return original(at, config, xy, change(labels))

    wrap(patch, prompts, "embed_points", embed)


def _swapped(labels: Tensor, a: int, b: int) -> Tensor:
    return ops.where(labels == a, b, ops.where(labels == b, a, labels))


def _place(patch: Patch, change: Callable[[Sam2Config, Tensor], Tensor]) -> None:
    def embed(original: Any, at: Scope, config: Sam2Config, xy: Tensor, labels: Tensor) -> Any:
        return original(at, config, change(config, xy), labels)

    wrap(patch, prompts, "embed_points", embed)


@fault("points")
def points_as_row_and_column(patch: Patch) -> None:
    _place(patch, lambda _, xy: ops.concat([xy[..., 1:], xy[..., :1]], axis=-1))


@fault("points")
def points_not_moved_to_the_pixel_centre(patch: Patch) -> None:
    _place(patch, lambda _, xy: xy - 0.5)


@fault("points")
def coordinates_for_1024_pixels_whatever_the_size(patch: Patch) -> None:
    _place(patch, lambda config, xy: (xy + 0.5) * (config.image_size / 1024) - 0.5)


@fault("points")
def the_corners_of_a_box_swapped(patch: Patch) -> None:
    _label(patch, lambda labels: _swapped(labels, 2, 3))


@fault("points")
def inside_and_outside_swapped(patch: Patch) -> None:
    _label(patch, lambda labels: _swapped(labels, 0, 1))


@fault("points")
def no_point_at_the_end(patch: Patch) -> None:
    patch.setattr(prompts, "points", prompts.embed_points)


@fault("points", "decoder:click")
def an_end_of_zeros(patch: Patch) -> None:
    def points(original: Any, at: Scope, config: Sam2Config, xy: Tensor, labels: Tensor) -> Tensor:
        ended: Tensor = original(at, config, xy, labels)
        return ops.concat([ended[:, :-1], ended[:, -1:] * 0.0], axis=1)

    wrap(patch, prompts, "points", points)


@fault("points")
def no_point_with_a_place(patch: Patch) -> None:
    """Label -1 keeps its Fourier features."""

    def embed(original: Any, at: Scope, config: Sam2Config, xy: Tensor, labels: Tensor) -> Any:
        place = prompts.fourier(at / "pe_layer", config, (xy + 0.5) / config.image_size)
        return original(at, config, xy, labels) + ops.where(labels[..., None] == -1, place, 0.0)

    wrap(patch, prompts, "embed_points", embed)


@fault("points", "dense")
def cosines_before_sines(patch: Patch) -> None:
    def fourier(original: Any, at: Scope, config: Sam2Config, xy: Tensor) -> Tensor:
        features, half = original(at, config, xy), config.channels // 2
        return ops.concat([features[..., half:], features[..., :half]], axis=-1)

    wrap(patch, prompts, "fourier", fourier)


@fault("dense", "decoder:click")
def sine_positions_for_the_decoder(patch: Patch) -> None:
    """The neck's positions, where the random Fourier ones belong."""

    def dense(at: Scope, config: Sam2Config) -> Tensor:
        grid = positions.sine_grid(config.channels, config.grid, config.grid)
        return at.builder.constant(grid.reshape(1, config.channels, -1).transpose(0, 2, 1))

    patch.setattr(prompts, "dense_positions", dense)


@fault("dense", "decoder:click")
def nothing_in_place_of_a_mask(patch: Patch) -> None:
    wrap(patch, prompts, "no_mask", lambda original, *given: original(*given) * 0.0)


@fault("decode:all")
def absent_points_that_are_seen(patch: Patch) -> None:
    wrap(patch, prompts, "hidden", lambda original, *given: original(*given) * 0.0)


@fault("decode:click")
def no_embedding_for_no_memory(patch: Patch) -> None:
    """`no_mem_embed` is not added."""

    def where(original: Any, condition: Tensor, yes: Any, no: Any) -> Any:
        is_it = isinstance(no, float) and no == 0.0 and isinstance(yes, Tensor)
        if is_it and len(yes.shape) == 4:
            return original(condition, yes * 0.0, no)
        return original(condition, yes, no)

    wrap(patch, ops, "where", where)


# The mask decoder.


def _tokens(patch: Patch, order: Sequence[slice]) -> None:
    def tokens(original: Any, at: Scope, config: Sam2Config) -> Tensor:
        start = original(at, config)
        return ops.concat([start[:, part] for part in order], axis=1)

    wrap(patch, mask_decoder, "output_tokens", tokens)


@fault("decoder:click")
def the_iou_token_before_the_score_token(patch: Patch) -> None:
    _tokens(patch, (slice(1, 2), slice(0, 1), slice(2, 6)))


@fault("decoder:click")
def the_mask_tokens_before_the_iou_token(patch: Patch) -> None:
    _tokens(patch, (slice(0, 1), slice(2, 6), slice(1, 2)))


@fault("decoder:click")
def a_first_layer_like_the_others(patch: Patch) -> None:
    """Layer 0 adds positions to its queries, and its self-attention has a shortcut."""

    def look(original: Any, *given: Any, first: bool) -> Any:
        return original(*given, first=False)

    wrap(patch, two_way, "_look_at_tokens", look)


@fault("decoder:click")
def values_with_positions_in_the_decoder(patch: Patch) -> None:
    def look(original: Any, at: Scope, config: Sam2Config, q: Tensor, k: Tensor, _: Tensor) -> Any:
        return original(at, config, q, k, k)

    wrap(patch, two_way, "token_to_image", look)


@fault("decoder:click")
def keys_without_positions_in_the_decoder(patch: Patch) -> None:
    def look(original: Any, at: Scope, config: Sam2Config, q: Tensor, _: Tensor, v: Tensor) -> Any:
        return original(at, config, q, v, v)

    wrap(patch, two_way, "token_to_image", look)


@fault("decoder:click")
def fine_features_left_out(patch: Patch) -> None:
    def upscale(original: Any, at: Scope, config: Sam2Config, x: Tensor, fine: Any) -> Any:
        return original(at, config, x, (fine[0] * 0.0, fine[1]))

    wrap(patch, mask_decoder, "upscale", upscale)


@fault("decoder:click")
def networks_of_the_masks_in_another_order(patch: Patch) -> None:
    def paint(original: Any, at: Scope, config: Sam2Config, tokens: Tensor, canvas: Tensor) -> Any:
        turned = ops.concat([tokens[:, i : i + 1] for i in (3, 2, 1, 0)], axis=1)
        return original(at, config, turned, canvas)

    wrap(patch, mask_decoder, "paint", paint)


@fault("decoder:click")
def ious_without_a_sigmoid(patch: Patch) -> None:
    patch.setattr(ops, "sigmoid", lambda x: x)


@fault("decoder:box")
def a_lower_demand_on_stability(patch: Patch) -> None:
    patch.setattr(mask_decoder, "STABILITY_WANTED", 0.95)


@fault("decoder:box")
def stability_over_a_wider_band(patch: Patch) -> None:
    patch.setattr(mask_decoder, "STABILITY_DELTA", 0.5)


@fault("decoder:box")
def mask_0_however_unstable(patch: Patch) -> None:
    patch.setattr(mask_decoder, "STABILITY_WANTED", -1.0)


@fault("decoder:box", "heads:pt_multi", "heads:none_multi", config="test2")
def the_best_of_all_four_masks(patch: Patch) -> None:
    def best(original: Any, decoded: Any, multimask: Tensor, steadiness: Tensor) -> Tensor:
        return ops.reduce(decoded.ious, (1,), how="argmax")

    wrap(patch, mask_decoder, "best_place", best)


# What video makes of an answer.


def _answers(patch: Patch, *, best_token: bool, keep_pointer: bool) -> None:
    def answers(
        original: Any, builder: Builder, config: Sam2Config, decoded: Any, multimask: Tensor
    ) -> dict[str, Tensor]:
        found: dict[str, Tensor] = original(builder, config, decoded, multimask)
        steadiness = mask_decoder.stability(decoded.masks)
        best = mask_decoder.best_place(decoded, multimask, steadiness)[:, None]
        place = best if best_token else ops.where(multimask[:, None], best, 0)
        token = ops.gather(decoded.tokens, place, 1, batch=1)[:, 0]
        pointer = mask_decoder.pointer(builder.scope(), config, token)
        if not keep_pointer:
            pointer = ops.where(decoded.object_score > 0.0, pointer, found["pointer"])
        return found | {"pointer": pointer}

    wrap(patch, graphs, "_answers", answers)


@fault("heads:pt_mask_single", "mask_prompt", config="test2")
def a_pointer_from_the_mask_that_replaced_mask_0(patch: Patch) -> None:
    _answers(patch, best_token=True, keep_pointer=False)


@fault("heads:pt_multi", "heads:none_multi")
def a_pointer_of_a_hidden_object(patch: Patch) -> None:
    _answers(patch, best_token=False, keep_pointer=True)


@fault("heads:pt_multi", "heads:none_multi")
def a_mask_of_a_hidden_object(patch: Patch) -> None:
    patch.setattr(graphs, "HIDDEN_LOGIT", -32.0)


@fault("mask_prompt")
def a_mask_prompt_made_smaller_without_smoothing(patch: Patch) -> None:
    def resize(original: Any, x: Tensor, size: Any, **named: Any) -> Any:
        return original(x, size, **named | {"antialias": False})

    wrap(patch, ops, "resize", resize)


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
        return original(logits, binary == (binary != binary))

    wrap(patch, memory_encoder, "mask_for_memory", soft)


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
    _resize(patch, "bilinear", "nearest")


# Memory attention.


def _rope(patch: Patch, change: Callable[..., Array]) -> None:
    op = OPS["axial_rope"]

    def turned(x: Array, **named: Any) -> Array:
        return change(op.reference, x, **named)

    patch.setitem(OPS, "axial_rope", replace(op, reference=turned))


@fault("memory_attention:b")
def rope_interleaved_over_frames(patch: Patch) -> None:
    """Each place repeated for all frames, not the whole grid for each frame."""

    def turned(reference: Any, x: Array, *, grid: tuple[int, int], **named: Any) -> Array:
        cells = grid[0] * grid[1]
        frames = (x.shape[-2] - named["unturned"]) // cells
        order = np.arange(frames * cells).reshape(cells, frames).T.reshape(-1)
        order = np.concatenate([order, np.arange(frames * cells, x.shape[-2])])
        y: Array = reference(x[..., order, :], grid=grid, **named)
        return y[..., np.argsort(order), :]

    _rope(patch, turned)


@fault("memory_attention:b")
def pointers_turned_too(patch: Patch) -> None:
    def turned(reference: Any, x: Array, *, grid: tuple[int, int], **named: Any) -> Array:
        cells, unturned = grid[0] * grid[1], named.pop("unturned")
        missing = np.zeros((*x.shape[:-2], (cells - unturned) % cells, x.shape[-1]), x.dtype)
        whole = np.concatenate([x, missing], axis=-2)
        y: Array = reference(whole, grid=grid, unturned=0, **named)
        return y[..., : x.shape[-2], :]

    _rope(patch, turned)


@fault("memory_attention:a")
def rows_turned_before_columns(patch: Patch) -> None:
    def turned(reference: Any, x: Array, **named: Any) -> Array:
        half = x.shape[-1] // 2
        order = np.r_[half : 2 * half, 0:half]
        y: Array = reference(x[..., order], **named)
        return y[..., np.argsort(order)]

    _rope(patch, turned)


@fault("memory_attention:a")
def halves_turned_in_place_of_neighbours(patch: Patch) -> None:
    def turned(reference: Any, x: Array, **named: Any) -> Array:
        order = np.arange(x.shape[-1]).reshape(2, -1).T.reshape(-1)
        y: Array = reference(x[..., order], **named)
        return y[..., np.argsort(order)]

    _rope(patch, turned)


@fault("memory_attention:a")
def another_rope_theta(patch: Patch) -> None:
    _rope(patch, lambda reference, x, **named: reference(x, **named | {"theta": 1000.0}))


def _cross(patch: Patch, change: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]) -> None:
    def attend(
        original: Any, at: Scope, config: Sam2Config, q: Tensor, k: Tensor, v: Tensor, rest: Dim
    ) -> Any:
        return original(at, config, q, *change(k, v), rest)

    wrap(patch, memory_attention, "turned_attention", attend)


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
    def alternating(original: Any, times: Tensor, channels: int) -> Tensor:
        encoded, half = original(times, channels), channels // 2
        return ops.gather(encoded, np.arange(channels).reshape(2, half).T.reshape(-1), -1)

    wrap(patch, memory_bank, "sine_time", alternating)


@fault("wiring:memory_attention")
def slots_off_by_one(patch: Patch) -> None:
    def frames(original: Any, at: Scope, config: Sam2Config, slots: Tensor) -> Any:
        last = config.memory_frames - 1
        return original(at, config, ops.where(slots == last, 0, slots + 1))

    wrap(patch, memory_bank, "frame_positions", frames)


@fault("wiring:memory_attention")
def frames_without_their_place(patch: Patch) -> None:
    wrap(patch, memory_bank, "sine_grid", lambda original, *given: original(*given) * 0)


@fault("wiring:memory_attention")
def pointers_cut_across(patch: Patch) -> None:
    """Channels dealt out to the tokens of a pointer in turn, not in four runs."""

    def tokens(original: Any, config: Sam2Config, pointers: Tensor) -> Tensor:
        N, Q, _ = pointers.shape
        split, C = memory_bank.tokens_per_pointer(config), config.memory_channels
        return pointers.reshape(N, Q, C, split).transpose(0, 1, 3, 2).reshape(N, Q * split, C)

    wrap(patch, memory_bank, "pointer_tokens", tokens)


__all__ = ["FAULTS", "Fault", "conv2d"]

"""Faults of the image encoder: trunk, norms, neck."""

from collections.abc import Callable
from typing import Any

import numpy as np

from samgraph import ops
from samgraph.graph import Array, Scope, Tensor
from samgraph.models.sam2 import graphs, hiera, mask_decoder, memory_attention, positions, two_way
from samgraph.models.sam2.config import Sam2Config
from samgraph.models.sam2.layers import width
from tests.models.sam2.faults.planting import Patch, fault, resize_otherwise, wrap

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
        lambda config, stage, pools: config.windows[stage - 1 if pools else min(stage + 1, 3)],
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

    inside: list[Tensor] = []

    def cut(original: Any, x: Tensor, *window: int, **named: bool) -> Any:
        inside[:] = [original(x[..., :1] * 0.0 + 1.0, *window, **named)]
        return original(x, *window, **named)

    def projections(original: Any, *given: Any) -> list[Tensor]:
        return [y * inside[0] for y in original(*given)]

    wrap(patch, hiera, "partition", cut)
    wrap(patch, hiera, "projections", projections)


@fault("encoder", config="test2")
def a_shortcut_from_the_input_before_its_norm(patch: Patch) -> None:
    before: list[Tensor] = []

    def norm(original: Any, at: Scope, x: Tensor, **named: float) -> Any:
        before[:] = [x]
        return original(at, x, **named)

    def cut(original: Any, x: Tensor, *window: int, **named: bool) -> Any:
        before[:] = [original(before[0], *window, **named)]
        return original(x, *window, **named)

    def straight(original: Any, at: Scope, x: Tensor, channels: int) -> Any:
        is_shortcut = at.path.endswith(".proj.") and not at.path.endswith(".attn.proj.")
        return original(at, before[0] if is_shortcut else x, channels)

    wrap(patch, hiera, "layer_norm", norm)
    wrap(patch, hiera, "partition", cut)
    wrap(patch, hiera, "linear", straight)


@fault("encoder", config="test2")
def pooling_by_the_mean(patch: Patch) -> None:
    def reduce(original: Any, x: Tensor, axes: Any, *, how: str, **named: Any) -> Tensor:
        result: Tensor = original(x, axes, how="mean" if how == "max" else how, **named)
        return result

    wrap(patch, ops, "reduce", reduce)


@fault("encoder", config="test2")
def as_many_heads_in_every_stage(patch: Patch) -> None:
    def attention(original: Any, at: Scope, x: Tensor, channels: int, _: int, pools: bool) -> Any:
        return original(at, x, channels, 2, pools)

    wrap(patch, hiera, "attention", attention)


@fault("encoder", config="test2")
def scores_scaled_by_the_whole_width(patch: Patch) -> None:
    def attention(original: Any, *inputs: Tensor, heads: int, scale: float) -> Any:
        return original(*inputs, heads=heads, scale=scale * heads**-0.5)

    wrap(patch, ops, "attention", attention)


@fault("encoder", config="test2")
def a_background_enlarged_linearly(patch: Patch) -> None:
    resize_otherwise(patch, "bicubic", "bilinear")


@fault("encoder", "memory_encoder")
def gelu_by_its_tanh_formula(patch: Patch) -> None:
    def gelu(x: Tensor) -> Tensor:
        inner = (x + x * x * x * 0.044715) * (2 * (2 / np.pi) ** 0.5)
        return x * ops.sigmoid(inner)

    patch.setattr(ops, "gelu", gelu)


def _epsilon(patch: Patch, module: Any, name: str, other: float) -> None:
    def norm(original: Any, at: Scope, x: Tensor, *, eps: float) -> Any:
        return original(at, x, eps=other)

    wrap(patch, module, name, norm)


@fault("quiet")
def the_norm_of_attention_in_the_trunk(patch: Patch) -> None:
    _epsilon(patch, hiera, "layer_norm", 1e-5)


@fault("quiet")
def the_norm_of_the_trunk_in_memory_attention(patch: Patch) -> None:
    _epsilon(patch, memory_attention, "layer_norm", 1e-6)


@fault("quiet")
def the_norm_of_the_trunk_in_the_decoder(patch: Patch) -> None:
    _epsilon(patch, two_way, "layer_norm", 1e-6)


@fault("quiet")
def the_norm_of_attention_in_upscaled_masks(patch: Patch) -> None:
    _epsilon(patch, mask_decoder, "layer_norm_2d", 1e-5)


@fault("quiet")
def the_norm_of_attention_between_convolutions(patch: Patch) -> None:
    def norm(original: Any, *inputs: Tensor, eps: float) -> Any:
        return original(*inputs, eps=1e-5)

    wrap(patch, ops, "layer_norm_2d", norm)


# The neck.


@fault("encoder", config="test2")
def no_features_from_above(patch: Patch) -> None:
    def resize(original: Any, x: Tensor, size: Any, *, how: str, **named: Any) -> Any:
        y = original(x, size, how=how, **named)
        return y * 0.0 if how == "nearest" else y

    wrap(patch, ops, "resize", resize)


@fault("encoder", config="test2")
def features_from_above_smoothed(patch: Patch) -> None:
    resize_otherwise(patch, "nearest", "bilinear")


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

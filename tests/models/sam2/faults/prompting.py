"""Faults of the prompt encoder."""

from collections.abc import Callable
from typing import Any

from samgraph import ops
from samgraph.graph import Scope, Tensor
from samgraph.models.sam2 import positions, prompts
from samgraph.models.sam2.config import Sam2Config
from tests.models.sam2.faults.planting import Patch, fault, wrap


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
        embedding = prompts.fourier(at / "pe_layer", config, (xy + 0.5) / config.image_size)
        return original(at, config, xy, labels) + ops.where(labels[..., None] == -1, embedding, 0.0)

    wrap(patch, prompts, "embed_points", embed)


@fault("points", "dense")
def cosines_before_sines(patch: Patch) -> None:
    def fourier(original: Any, at: Scope, config: Sam2Config, xy: Tensor) -> Tensor:
        features, half = original(at, config, xy), config.channels // 2
        return ops.concat([features[..., half:], features[..., :half]], axis=-1)

    wrap(patch, prompts, "fourier", fourier)


@fault("dense", "decoder:click")
def sine_positions_for_the_decoder(patch: Patch) -> None:
    """The neck's positions, where the random Fourier positions belong."""

    def dense(at: Scope, config: Sam2Config) -> Tensor:
        grid = positions.sine_grid(config.channels, config.grid, config.grid)
        return at.builder.constant(grid.reshape(1, config.channels, -1).transpose(0, 2, 1))

    patch.setattr(prompts, "dense_positions", dense)


@fault("dense", "decoder:click")
def nothing_in_place_of_a_mask(patch: Patch) -> None:
    wrap(patch, prompts, "no_mask", lambda original, *given: original(*given) * 0.0)


@fault("decode:all")
def absent_points_that_are_seen(patch: Patch) -> None:
    wrap(patch, prompts, "padding_mask", lambda original, *given: original(*given) * 0.0)


@fault("decode:click")
def no_embedding_for_no_memory(patch: Patch) -> None:
    """`no_mem_embed` is not added."""

    def where(original: Any, condition: Tensor, yes: Any, no: Any) -> Any:
        is_it = isinstance(no, float) and no == 0.0 and isinstance(yes, Tensor)
        if is_it and len(yes.shape) == 3:
            return original(condition, yes * 0.0, no)
        return original(condition, yes, no)

    wrap(patch, ops, "where", where)

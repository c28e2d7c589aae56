"""Mistakes made on purpose in the references of ops, for `test_planted_faults.py`.

Each is one that someone could make, or has made: the docstring says what where the name does not.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from samgraph.graph.types import Array
from samgraph.ops import OPS
from samgraph.ops.axial_rope import rotation_tables

Reference = Callable[..., Array]
TRUE: dict[str, Reference] = {name: op.reference for name, op in OPS.items()}


def layer_norm_with_another_eps(x: Array, *rest: Array, eps: float) -> Array:
    return TRUE["layer_norm"](x, *rest, eps=eps * 10)


def layer_norm_unbiased(x: Array, scale: Array, shift: Array, *, eps: float) -> Array:
    centred = x - x.mean(-1, keepdims=True)
    y: Array = centred / np.sqrt(x.var(-1, keepdims=True, ddof=1) + eps) * scale + shift
    return y


def layer_norm_eps_outside(x: Array, scale: Array, shift: Array, *, eps: float) -> Array:
    centred = x - x.mean(-1, keepdims=True)
    y: Array = centred / (np.sqrt(x.var(-1, keepdims=True)) + eps) * scale + shift
    return y


def layer_norm_2d_over_columns(x: Array, *rest: Array, eps: float) -> Array:
    square = x.shape[1] == x.shape[3]
    return (
        TRUE["layer_norm"](x, *rest, eps=eps)
        if square
        else TRUE["layer_norm_2d"](x[:, ::-1], *rest, eps=eps)
    )


def gelu_by_tanh(x: Array) -> Array:
    inner = np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)
    y: Array = 0.5 * x * (1 + np.tanh(inner))
    return y.astype(x.dtype)


def softmax_over_the_first_axis(x: Array, *, axis: int) -> Array:
    return TRUE["softmax"](x, axis=0)


def attention_unscaled(*arrays: Array, heads: int, scale: float) -> Array:
    return TRUE["attention"](*arrays, heads=heads, scale=1.0)


def attention_without_mask(*arrays: Array, heads: int, scale: float) -> Array:
    return TRUE["attention"](*arrays[:3], heads=heads, scale=scale)


def attention_with_interleaved_heads(
    q: Array, k: Array, v: Array, *mask: Array, heads: int, scale: float
) -> Array:
    def shuffle(x: Array) -> Array:
        apart = x.reshape(*x.shape[:-1], x.shape[-1] // heads, heads)
        return apart.swapaxes(-1, -2).reshape(x.shape)

    return TRUE["attention"](shuffle(q), shuffle(k), shuffle(v), *mask, heads=heads, scale=scale)


def attention_with_keys_as_values(
    q: Array, k: Array, v: Array, *mask: Array, heads: int, scale: float
) -> Array:
    other = k if k.shape == v.shape else v[..., ::-1, :]
    return TRUE["attention"](q, k, np.ascontiguousarray(other), *mask, heads=heads, scale=scale)


def _rope(x: Array, cos: Array, sin: Array, heads: int, rotated: int) -> Array:
    size = x.shape[-1] // heads // 2
    pairs = x[..., :rotated, :].reshape(*x.shape[:-2], rotated, heads, size, 2)
    a, b = pairs[..., 0], pairs[..., 1]
    c, s = cos[:, None, :].astype(x.dtype), sin[:, None, :].astype(x.dtype)
    y = np.stack([a * c - b * s, a * s + b * c], -1).reshape(*x.shape[:-2], rotated, x.shape[-1])
    return np.concatenate([y, x[..., rotated:, :]], -2)


def _rope_of_pooled(
    x: Array, grid: Any, theta: float, heads: int, unrotated: int, pooled: int
) -> Array:
    """The true one: these faults are seen without pooled tokens."""
    given = {"grid": grid, "theta": theta, "heads": heads, "unrotated": unrotated}
    return TRUE["axial_rope"](x, **given, pooled=pooled)


def rope_interleaved(
    x: Array, *, grid: Any, theta: float, heads: int, unrotated: int, pooled: int = 0
) -> Array:
    """Every position once for each frame, then the next: not frame after frame."""
    if pooled:
        return _rope_of_pooled(x, grid, theta, heads, unrotated, pooled)
    rotated = x.shape[-2] - unrotated
    if not rotated:
        return x
    tables = rotation_tables(grid, x.shape[-1] // heads, theta)
    cos, sin = (np.repeat(table, rotated // len(table), 0) for table in tables)
    return _rope(x, cos, sin, heads, rotated)


def rope_with_rows_first(
    x: Array, *, grid: Any, theta: float, heads: int, unrotated: int, pooled: int = 0
) -> Array:
    if pooled:
        return _rope_of_pooled(x, grid, theta, heads, unrotated, pooled)
    rotated = x.shape[-2] - unrotated
    if not rotated:
        return x
    tables = rows_first(grid, x.shape[-1] // heads, theta)
    cos, sin = (np.tile(table, (rotated // len(table), 1)) for table in tables)
    return _rope(x, cos, sin, heads, rotated)


def rope_turning_the_last(x: Array, *, unrotated: int, **rest: Any) -> Array:
    """The first tokens are left alone, not the last."""
    rotated = TRUE["axial_rope"](np.roll(x, -unrotated, -2), unrotated=unrotated, **rest)
    return np.roll(rotated, unrotated, -2)


def rope_of_halves(x: Array, *, heads: int, **rest: Any) -> Array:
    """Channel i goes with channel i + D/2, not with its neighbour."""

    def apart(x: Array, back: bool) -> Array:
        size = x.shape[-1] // heads // 2
        split = (heads, size, 2) if back else (heads, 2, size)
        return x.reshape(*x.shape[:-1], *split).swapaxes(-1, -2).reshape(x.shape)

    return apart(TRUE["axial_rope"](apart(x, False), heads=heads, **rest), True)


def rope_with_another_theta(x: Array, *, theta: float, **rest: Any) -> Array:
    return TRUE["axial_rope"](x, theta=theta * 2, **rest)


def rope_of_pooled_corners(x: Array, *, pooled: int = 0, grid: Any, **rest: Any) -> Array:
    """Averages of 2 x 2 cells are at the first of them, not at their middle."""
    if not pooled:
        return TRUE["axial_rope"](x, grid=grid, **rest)
    wide = np.zeros_like(x[..., :pooled, :]).repeat(4, -2)
    frames, (h, w) = pooled * 4 // (grid[0] * grid[1]), grid
    cells = wide.reshape(*x.shape[:-2], frames, h, w, x.shape[-1])
    corners = x[..., :pooled, :].reshape(*x.shape[:-2], frames, h // 2, w // 2, x.shape[-1])
    cells[..., ::2, ::2, :] = corners
    y = TRUE["axial_rope"](wide, grid=grid, **{**rest, "unrotated": 0}).reshape(cells.shape)
    first = y[..., ::2, ::2, :].reshape(x[..., :pooled, :].shape)
    rest_of_it = TRUE["axial_rope"](x[..., pooled:, :], grid=grid, **rest)
    return np.concatenate([first, rest_of_it], -2)


def linear_transposed(x: Array, weight: Array, *bias: Array, activation: str = "none") -> Array:
    transposed = weight.T if weight.shape[0] == weight.shape[1] else weight[::-1]
    return TRUE["linear"](x, transposed, *bias, activation=activation)


def linear_without_activation(*arrays: Array, activation: str = "none") -> Array:
    return TRUE["linear"](*arrays)


def linear_without_bias(x: Array, weight: Array, *bias: Array, activation: str = "none") -> Array:
    return TRUE["linear"](x, weight, activation=activation)


def conv_padded_on_one_side(x: Array, *rest: Array, padding: Any, **attributes: Any) -> Array:
    wide = np.pad(x, ((0, 0), (0, 0), (2 * padding[0], 0), (2 * padding[1], 0)))
    return TRUE["conv2d"](wide, *rest, padding=(0, 0), **attributes)


def conv_padded_with_the_edge(x: Array, *rest: Array, padding: Any, **attributes: Any) -> Array:
    sides = ((0, 0), (0, 0), (padding[0],) * 2, (padding[1],) * 2)
    return TRUE["conv2d"](np.pad(x, sides, "edge"), *rest, padding=(0, 0), **attributes)


def conv_with_groups_in_turn(x: Array, *rest: Array, groups: int, **attributes: Any) -> Array:
    """Channel c belongs to group c % groups."""
    mixed = x.reshape(x.shape[0], -1, groups, *x.shape[2:]).swapaxes(1, 2).reshape(x.shape)
    return TRUE["conv2d"](mixed, *rest, groups=groups, **attributes)


def conv_flipped(x: Array, weight: Array, *bias: Array, **attributes: Any) -> Array:
    return TRUE["conv2d"](x, weight[:, :, ::-1, ::-1], *bias, **attributes)


def conv_transpose_flipped(x: Array, weight: Array, *bias: Array, stride: Any) -> Array:
    return TRUE["conv_transpose2d"](x, weight[:, :, ::-1, ::-1], *bias, stride=stride)


def resize_half_a_pixel_off(x: Array, *, size: Any, how: str, antialias: bool) -> Array:
    positions = [np.arange(n) * (m / n) for n, m in zip(size, x.shape[2:], strict=True)]
    rows, columns = (
        np.maximum(0, 1 - np.abs(np.arange(m)[None] - np.minimum(p, m - 1)[:, None]))
        for p, m in zip(positions, x.shape[2:], strict=True)
    )
    y: Array = rows @ x @ columns.T
    return y.astype(x.dtype)


def resize_nearest_for_all(x: Array, *, size: Any, how: str, antialias: bool) -> Array:
    return TRUE["resize"](x, size=size, how="nearest", antialias=False)


def resize_without_antialias(x: Array, *, size: Any, how: str, antialias: bool) -> Array:
    return TRUE["resize"](x, size=size, how=how, antialias=False)


def resize_rounding_nearest(x: Array, *, size: Any, how: str, antialias: bool) -> Array:
    if how != "nearest":
        return TRUE["resize"](x, size=size, how=how, antialias=antialias)
    rows, columns = (
        np.minimum(np.round(np.arange(n) * m / n).astype(int), m - 1)
        for n, m in zip(size, x.shape[2:], strict=True)
    )
    return x[:, :, rows][..., columns]


def argmax_of_the_last(x: Array, *, axes: Any, how: str, keep: bool) -> Array:
    if how != "argmax" or len(axes) != 1:
        return TRUE["reduce"](x, axes=axes, how=how, keep=keep)
    axis = axes[0]
    last = x.shape[axis] - 1 - np.flip(x, axis).argmax(axis, keepdims=keep)
    return np.asarray(last, np.int64)


def argmax_in_the_order_of_the_tensor(x: Array, *, axes: Any, how: str, keep: bool) -> Array:
    order = tuple(sorted(axis % x.ndim for axis in axes))
    return TRUE["reduce"](x, axes=order, how=how, keep=keep)


def concat_reversed(*arrays: Array, axis: int) -> Array:
    return TRUE["concat"](*arrays[::-1], axis=axis)


def gather_clamped(x: Array, index: Array, *, axis: int, batch: int) -> Array:
    inside = np.clip(index, -x.shape[axis], x.shape[axis] - 1)
    return TRUE["gather"](x, inside, axis=axis, batch=batch)


def gather_without_negative(x: Array, index: Array, *, axis: int, batch: int) -> Array:
    return TRUE["gather"](x, np.maximum(index, 0), axis=axis, batch=batch)


def pad_with_zero(x: Array, *, before: Any, after: Any, value: float) -> Array:
    return TRUE["pad"](x, before=before, after=after, value=0.0)


def tile_each_element(x: Array, *, counts: Any) -> Array:
    for axis, count in enumerate(counts):
        x = np.repeat(x, count, axis)
    return x


def transpose_by_reshape(x: Array, *, axes: Any) -> Array:
    return x.reshape([x.shape[axis] for axis in axes])


def where_swapped(condition: Array, a: Array, b: Array) -> Array:
    return TRUE["where"](condition, b, a)


def compare_or_equal(a: Array, b: Array, *, how: str) -> Array:
    return TRUE["compare"](a, b, how={"lt": "le", "gt": "ge"}.get(how, how))


def cast_rounding(x: Array, *, dtype: Any) -> Array:
    return TRUE["cast"](np.round(x) if dtype[0] in "iu" else x, dtype=dtype)


def max_pool_from_the_end(x: Array, *, kernel: Any, stride: Any) -> Array:
    y = TRUE["max_pool2d"](x[:, :, ::-1], kernel=kernel, stride=stride)
    return np.ascontiguousarray(y[:, :, ::-1])


def sigmoid_of_twice(x: Array) -> Array:
    return TRUE["sigmoid"](x * np.float32(1.01))


def rows_first(
    grid: tuple[int, int], width: int, theta: float, stride: int = 1
) -> tuple[Array, Array]:
    cos, sin = rotation_tables(grid, width, theta, stride)
    return np.roll(cos, width // 4, 1), np.roll(sin, width // 4, 1)


IN_REFERENCES: list[tuple[str, Reference]] = [
    ("layer_norm", layer_norm_with_another_eps),
    ("layer_norm", layer_norm_unbiased),
    ("layer_norm", layer_norm_eps_outside),
    ("layer_norm_2d", layer_norm_2d_over_columns),
    ("gelu", gelu_by_tanh),
    ("softmax", softmax_over_the_first_axis),
    ("attention", attention_unscaled),
    ("attention", attention_without_mask),
    ("attention", attention_with_interleaved_heads),
    ("attention", attention_with_keys_as_values),
    ("axial_rope", rope_interleaved),
    ("axial_rope", rope_with_rows_first),
    ("axial_rope", rope_turning_the_last),
    ("axial_rope", rope_of_halves),
    ("axial_rope", rope_with_another_theta),
    ("axial_rope", rope_of_pooled_corners),
    ("linear", linear_transposed),
    ("linear", linear_without_activation),
    ("linear", linear_without_bias),
    ("conv2d", conv_padded_on_one_side),
    ("conv2d", conv_padded_with_the_edge),
    ("conv2d", conv_with_groups_in_turn),
    ("conv2d", conv_flipped),
    ("conv_transpose2d", conv_transpose_flipped),
    ("resize", resize_half_a_pixel_off),
    ("resize", resize_nearest_for_all),
    ("resize", resize_without_antialias),
    ("resize", resize_rounding_nearest),
    ("reduce", argmax_of_the_last),
    ("reduce", argmax_in_the_order_of_the_tensor),
    ("concat", concat_reversed),
    ("gather", gather_clamped),
    ("gather", gather_without_negative),
    ("pad", pad_with_zero),
    ("tile", tile_each_element),
    ("transpose", transpose_by_reshape),
    ("where", where_swapped),
    ("compare", compare_or_equal),
    ("cast", cast_rounding),
    ("max_pool2d", max_pool_from_the_end),
    ("sigmoid", sigmoid_of_twice),
]

"""Every op in torch's functions: the same arguments as its numpy reference, with tensors.

All of them are differentiable where their ops are. Half precision is computed in float32 inside
and rounded once, by torch's own kernels or here.
"""

import math
from functools import lru_cache

import numpy as np
import torch
from torch.nn import functional

from samgraph.engines.torch.products import ACTIVATIONS, PRODUCTS, Rule
from samgraph.engines.torch.tensors import TORCH_DTYPES, to_tensor, widen
from samgraph.graph.types import Array, DType
from samgraph.ops.axial_rope import half, rotation_tables
from samgraph.ops.resize import weights as resize_weights

Pair = tuple[int, int]
Numbers = tuple[int, ...]

FEW_CHANNELS = 64


def _cast(x: torch.Tensor, *, dtype: DType) -> torch.Tensor:
    return x.to(TORCH_DTYPES[dtype])


def _clip(x: torch.Tensor, *, low: float, high: float) -> torch.Tensor:
    return torch.clamp(x, _number(low, x), _number(high, x))


def _number(value: float, like: torch.Tensor) -> float:
    """A number of the dtype of a tensor; one too large for it is infinity, as in numpy."""
    if not like.is_floating_point():
        return int(value)
    return float(torch.tensor(value, dtype=torch.float64).to(like.dtype))


def _compare(a: torch.Tensor, b: torch.Tensor, *, how: str) -> torch.Tensor:
    y: torch.Tensor = getattr(torch, how)(a, b)
    return y


def _concat(*tensors: torch.Tensor, axis: int) -> torch.Tensor:
    return torch.cat(tensors, axis)


def _expand(x: torch.Tensor, *, shape: Numbers) -> torch.Tensor:
    return x.expand(shape)


def _gather(x: torch.Tensor, index: torch.Tensor, *, axis: int, batch: int) -> torch.Tensor:
    """Rows by number, zeros where there is no such row."""
    axis %= x.ndim
    length, front, named = x.shape[axis], x.shape[:batch], index.shape[batch:]
    indices = torch.where(index < 0, index + length, index).long()
    inside = (indices >= 0) & (indices < length)
    indices = torch.where(inside, indices, 0)
    rows = x.movedim(axis, batch).flatten(0, batch)  # batch axes and axis are one
    if batch:
        starts = torch.arange(math.prod(front), device=x.device) * length
        indices = indices + starts.reshape([*front, *(1,) * len(named)])
    picked = rows.index_select(0, indices.reshape(-1)).reshape([*index.shape, *rows.shape[1:]])
    shown = inside.reshape([*index.shape, *(1,) * (rows.ndim - 1)])
    y = picked.masked_fill(~shown, 0)
    moved = range(batch, batch + len(named))
    return y.movedim(tuple(moved), tuple(position + axis - batch for position in moved))


def _layer_norm(
    x: torch.Tensor, scale: torch.Tensor, shift: torch.Tensor, *, eps: float
) -> torch.Tensor:
    y = functional.layer_norm(widen(x), x.shape[-1:], widen(scale), widen(shift), eps)
    return y.to(x.dtype)


def _layer_norm_2d(
    x: torch.Tensor, scale: torch.Tensor, shift: torch.Tensor, *, eps: float
) -> torch.Tensor:
    if x.shape[1] > FEW_CHANNELS:
        return _layer_norm(x.movedim(1, -1), scale, shift, eps=eps).movedim(-1, 1)
    wide, ones = widen(x), (1,) * (x.ndim - 2)  # torch's kernel is slow on short rows
    apart = wide - wide.mean(1, keepdim=True)
    size = torch.rsqrt(apart.square().mean(1, keepdim=True) + eps)
    scale, shift = (widen(value).reshape(-1, *ones) for value in (scale, shift))
    return (apart * size * scale + shift).to(x.dtype)


def _max_pool2d(x: torch.Tensor, *, kernel: Pair, stride: Pair) -> torch.Tensor:
    return functional.max_pool2d(x, kernel, stride)


def _pad(x: torch.Tensor, *, before: Numbers, after: Numbers, value: float) -> torch.Tensor:
    pairs = [n for b, a in zip(before[::-1], after[::-1], strict=True) for n in (b, a)]
    return functional.pad(x, pairs, value=_number(value, x))


def _reduce(x: torch.Tensor, *, axes: Numbers, how: str, keep: bool) -> torch.Tensor:
    reduced = [axis % x.ndim for axis in axes]
    if how == "argmax":
        return _argmax(x, reduced, keep)
    if not reduced:  # torch would take all axes
        return x
    name = {"max": "amax", "min": "amin"}.get(how, how)
    y: torch.Tensor = getattr(torch, name)(widen(x), reduced, keepdim=keep)
    return y.to(x.dtype)


def _argmax(x: torch.Tensor, reduced: list[int], keep: bool) -> torch.Tensor:
    """The first of the largest, in the named axes read in the order given."""
    left = [axis for axis in range(x.ndim) if axis not in reduced]
    count = math.prod(x.shape[axis] for axis in reduced)
    y = x.permute(left + reduced).reshape([x.shape[axis] for axis in left] + [count]).argmax(-1)
    return y.reshape([1 if i in reduced else n for i, n in enumerate(x.shape)]) if keep else y


def _reshape(x: torch.Tensor, *, shape: Numbers) -> torch.Tensor:
    return x.reshape(shape)


def _resize(x: torch.Tensor, *, size: Pair, how: str, antialias: bool) -> torch.Tensor:
    """Two products with constant weights: exact, and with gradients that repeat to the bit."""
    lengths = (x.shape[2], x.shape[3])
    if how == "nearest" and all(map(_doubles, lengths, size)):
        return _repeat(_repeat(x, 2, size[0]), 3, size[1])
    wide = widen(x)
    rows, columns = (
        _resize_table(length, wanted, how, antialias, wide.dtype, wide.device)
        for length, wanted in zip(lengths, size, strict=True)
    )
    return (rows @ wide @ columns.mT).to(x.dtype)


def _doubles(length: int, size: int) -> bool:
    """Whether the scale is 1, 2, 4, ...: there each pixel is repeated; others round oddly."""
    return size % length == 0 and (size // length).bit_count() == 1


def _repeat(x: torch.Tensor, axis: int, size: int) -> torch.Tensor:
    """Every element along `axis` several times, up to `size` in all."""
    times = size // x.shape[axis]
    shape = list(x.shape)
    shape.insert(axis + 1, times)
    return x.unsqueeze(axis + 1).expand(shape).flatten(axis, axis + 1)


def _slice(x: torch.Tensor, *, starts: Numbers, ends: Numbers, steps: Numbers) -> torch.Tensor:
    return x[tuple(slice(*bounds) for bounds in zip(starts, ends, steps, strict=True))]


def _softmax(x: torch.Tensor, *, axis: int) -> torch.Tensor:
    return torch.softmax(x, axis)


def _tile(x: torch.Tensor, *, counts: Numbers) -> torch.Tensor:
    return x.repeat(counts)


def _transpose(x: torch.Tensor, *, axes: Numbers) -> torch.Tensor:
    return x.permute(axes)


def _axial_rope(
    x: torch.Tensor, *, grid: Pair, theta: float, heads: int, unrotated: int, pooled: int = 0
) -> torch.Tensor:
    """Rotate every frame by the same table."""
    wide, end = widen(x), x.shape[-2] - unrotated
    parts = [_rotate(wide[..., pooled:end, :], grid, theta, heads, 1)]
    if pooled:
        parts.insert(0, _rotate(wide[..., :pooled, :], half(grid), theta, heads, 2))
    if unrotated:
        parts.append(wide[..., end:, :])
    return (torch.cat(parts, -2) if len(parts) > 1 else parts[0]).to(x.dtype)


def _rotate(x: torch.Tensor, grid: Pair, theta: float, heads: int, stride: int) -> torch.Tensor:
    """Whole frames of a grid."""
    *front, tokens, channels = x.shape
    area, width = grid[0] * grid[1], channels // heads
    turns = _turns(grid, width, theta, stride, x.dtype, x.device)
    size = (tokens // area, area, heads, width // 2, 2)
    pairs = torch.view_as_complex(x.reshape(*front, *size).contiguous())
    return torch.view_as_real(pairs * turns).reshape(x.shape)


@lru_cache(maxsize=32)
def _turns(
    grid: Pair, width: int, theta: float, stride: int, dtype: torch.dtype, device: torch.device
) -> torch.Tensor:
    """Every token's angles as complex numbers of size one, the same for all heads."""
    tables = rotation_tables(grid, width, theta, stride)
    cos, sin = (_table(x[:, None, :], dtype, device) for x in tables)
    with torch.inference_mode(False):
        return torch.complex(cos, sin)


@lru_cache(maxsize=32)
def _resize_table(
    length: int, size: int, how: str, antialias: bool, dtype: torch.dtype, device: torch.device
) -> torch.Tensor:
    """How much of each input pixel every output pixel takes."""
    return _table(resize_weights(length, size, how, antialias), dtype, device)


def _table(array: Array, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """A tensor that is kept, and may be read by runs with and without gradients."""
    with torch.inference_mode(False):
        return to_tensor(np.asarray(array, np.float64), torch.device("cpu")).to(device, dtype)


RULES: dict[str, Rule] = {
    **PRODUCTS,
    "add": torch.add,
    "axial_rope": _axial_rope,
    "cast": _cast,
    "clip": _clip,
    "compare": _compare,
    "concat": _concat,
    "cos": torch.cos,
    "div": torch.div,
    "exp": torch.exp,
    "expand": _expand,
    "gather": _gather,
    "gelu": ACTIVATIONS["gelu"],
    "layer_norm": _layer_norm,
    "layer_norm_2d": _layer_norm_2d,
    "log": torch.log,
    "max_pool2d": _max_pool2d,
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "mul": torch.mul,
    "pad": _pad,
    "reduce": _reduce,
    "relu": torch.relu,
    "reshape": _reshape,
    "resize": _resize,
    "sigmoid": torch.sigmoid,
    "sin": torch.sin,
    "slice": _slice,
    "softmax": _softmax,
    "sqrt": torch.sqrt,
    "sub": torch.sub,
    "tile": _tile,
    "transpose": _transpose,
    "where": torch.where,
}
"""All ops but `constant`, whose tensor the evaluator keeps."""

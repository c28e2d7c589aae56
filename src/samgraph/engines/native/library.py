"""The compiled `attention.c`, called with numpy arrays."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import numpy as np

from samgraph.errors import EngineError
from samgraph.graph.types import Array

NAME = "_attention.lib"  # next to this file; the same on every system, found by path alone
VERSION = 3  # of what the kernels compute; part of the key of cached graphs
_ROWS = partial(np.ascontiguousarray, dtype=np.float32)

_Floats = ctypes.c_void_p
_Int = ctypes.c_int64


class _Attention(ctypes.Structure):
    """`struct sg_attention` of attention.c."""

    _fields_ = (
        *((name, _Floats) for name in ("q", "k", "v", "mask", "out")),
        *((name, _Int) for name in ("batch", "heads", "queries", "keys", "width", "value_width")),
        ("mask_strides", _Int * 4),
        ("scale", ctypes.c_float),
    )


class _Frames(ctypes.Structure):
    """`struct sg_frames` of attention.c."""

    _fields_ = (
        *((name, _Int) for name in ("frames", "rows", "columns")),
        ("tables", _Floats * 4),
    )


class _Memory(ctypes.Structure):
    """`struct sg_memory` of attention.c."""

    _fields_ = (
        *((name, _Floats) for name in ("q", "k", "v", "mask", "weight", "bias", "out")),
        ("centres", _Floats * 2),
        ("parts", _Frames * 2),
        *((name, _Int) for name in ("batch", "queries", "plain")),
        *((name, _Int) for name in ("width", "channels", "value_width")),
        ("scale", ctypes.c_float),
        ("rounded", ctypes.c_int32),
    )


@dataclass(frozen=True)
class Kernels:
    """The kernels for one instruction set. They may run in several threads at once."""

    _library: ctypes.CDLL
    instructions: str
    _set: int

    def flash_attention(
        self,
        q: Array,
        k: Array,
        v: Array,
        mask: Array | None = None,
        *,
        heads: int,
        scale: float,
        threads: int = 1,
    ) -> Array:
        """What `ops.attention` means: [..., T, heads*D] -> [..., T, heads*E], computed in f32."""
        dtype = q.dtype
        q, k, v = map(_ROWS, (q, k, v))
        *outer, T, _ = q.shape
        E = v.shape[-1]
        out = np.empty((*outer, T, E), np.float32)
        job = _Attention(
            q=q.ctypes.data, k=k.ctypes.data, v=v.ctypes.data, out=out.ctypes.data, scale=scale
        )
        job.batch, job.heads, job.queries = int(np.prod(outer, dtype=int)), heads, T
        job.keys, job.width, job.value_width = k.shape[-2], q.shape[-1] // heads, E // heads
        if mask is not None:
            scores = (*outer, heads, T, k.shape[-2])
            spread = np.broadcast_to(_ROWS(mask), scores)
            if len(outer) > 1:  # one stride for all outer axes
                spread = np.ascontiguousarray(spread)
            spread = spread.reshape(job.batch, *scores[-3:])
            job.mask, job.mask_strides = (
                spread.ctypes.data,
                (_Int * 4)(*(s // 4 for s in spread.strides)),
            )
        if out.size and self._library.sg_attention(ctypes.byref(job), self._set, threads):
            raise EngineError("there is not enough memory for attention", hint="fewer objects")
        return out.astype(dtype, copy=False)

    def rope_key_attention(
        self,
        q: Array,
        k: Array,
        v: Array,
        weight: Array,
        bias: Array,
        mask: Array | None = None,
        *,
        grid: tuple[int, int],
        theta: float,
        unrotated: int,
        scale: float,
        pooled: int = 0,
        rounded: bool = False,
        threads: int = 1,
    ) -> Array:
        """Attention over `axial_rope(linear(k, weight, bias))`: [N, T, D] -> [N, T, E]."""
        dtype = q.dtype
        q, k, v, weight, bias = map(_ROWS, (q, k, v, weight, bias))
        N, T, D = q.shape
        out = np.empty((N, T, v.shape[-1]), np.float32)
        job = _Memory(q=q.ctypes.data, k=k.ctypes.data, v=v.ctypes.data, out=out.ctypes.data)
        job.weight, job.bias, job.scale = weight.ctypes.data, bias.ctypes.data, scale
        job.rounded = rounded
        if mask is not None:
            mask = _ROWS(mask.reshape(-1))
            job.mask = mask.ctypes.data
        tables = _tables(grid, D, theta)
        job.centres, job.batch, job.queries, job.plain = tables.centres, N, T, unrotated
        frames = (k.shape[1] - unrotated - pooled) // (grid[0] * grid[1])
        job.parts[1] = _Frames(frames, *grid, tables.halves)
        if pooled:
            half = grid[0] // 2, grid[1] // 2
            tables = _tables(half, D, theta, 2)  # around the same centre
            job.parts[0] = _Frames(pooled // (half[0] * half[1]), *half, tables.halves)
        job.width, job.channels, job.value_width = D, k.shape[-1], v.shape[-1]
        if out.size and self._library.sg_memory_attention(ctypes.byref(job), self._set, threads):
            raise EngineError("there is not enough memory for attention", hint="fewer objects")
        return out.astype(dtype, copy=False)


@cache
def find_kernels() -> Kernels | None:
    """The kernels for the widest instructions that work here; None where none were built."""
    path = Path(__file__).with_name(NAME)
    if not path.is_file():
        return None
    try:
        return load_kernels(path)[-1]
    except (OSError, AttributeError):  # built for another system, or an older one
        return None


def load_kernels(path: Path) -> list[Kernels]:
    """The kernels in a library for each set of instructions that works here, the widest last."""
    library = ctypes.CDLL(str(path))
    library.sg_name.restype = ctypes.c_char_p
    sets = range(library.sg_best() + 1)
    return [Kernels(library, library.sg_name(i).decode(), i) for i in sets]


@dataclass(frozen=True)
class _Tables:
    """Cosines and sines of positions behind the middle of the grid, and of the middle itself.

    Pointers to four tables [half, width/4], of columns and of rows, and to two [2, width/4].
    Positions are `stride` cells apart.
    """

    halves: ctypes.Array[ctypes.c_void_p]
    centres: ctypes.Array[ctypes.c_void_p]
    arrays: tuple[Array, ...]  # what they point to


@cache
def _tables(grid: tuple[int, int], width: int, theta: float, stride: int = 1) -> _Tables:
    speeds = theta ** (-np.arange(0, width, 4) / width)
    arrays: list[Array] = []
    middles = []
    for side in (grid[1], grid[0]):
        middle = (side - 1) / 2
        steps = np.arange(side - (side + 1) // 2, side) - middle
        angles = np.outer(steps * stride, speeds)
        arrays += [np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)]
        middles.append(middle * speeds)
    arrays += [f(np.stack(middles)).astype(np.float32) for f in (np.cos, np.sin)]
    pointers = [array.ctypes.data for array in arrays]
    return _Tables((_Floats * 4)(*pointers[:4]), (_Floats * 2)(*pointers[4:]), tuple(arrays))

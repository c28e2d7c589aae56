"""Functions that several type rules and references share."""

from collections.abc import Callable, Sequence

import numpy as np

from samgraph.errors import ShapeError
from samgraph.graph.dims import Dim, Shape, floor_divide
from samgraph.graph.registry import expect
from samgraph.graph.types import FLOATS, Array, TensorType


def broadcast(op: str, *types: TensorType) -> Shape:
    """The common shape by numpy's rules; a symbol fits itself and 1, nothing else."""
    rank = max(type.rank for type in types)
    result: list[Dim] = []
    for axis in range(rank):
        dims = {type.shape[axis - rank] for type in types if rank - axis <= type.rank}
        dims.discard(1)
        if len(dims) > 1:
            shapes = " and ".join(map(str, types))
            raise ShapeError(
                f"`{op}`: shapes do not broadcast", got=shapes, expected="equal lengths, or 1"
            )
        result.append(dims.pop() if dims else 1)
    return tuple(result)


def same_dtype(op: str, *types: TensorType) -> None:
    """Raise unless all inputs have one dtype: there is no implicit conversion."""
    if len({type.dtype for type in types}) != 1:
        given = ", ".join(map(str, types))
        raise ShapeError(f"`{op}`: dtypes differ", got=given, expected="one dtype")


def need_float(op: str, *types: TensorType) -> None:
    """Raise unless all inputs are floating point, of one dtype."""
    same_dtype(op, *types)
    dtype = types[0].dtype
    expect(dtype in FLOATS, op, "needs floating point", got=dtype, want="f32, f16, bf16 or f64")


def need_rank(op: str, name: str, type: TensorType, rank: int) -> None:
    """Raise unless the input `name` has this many axes."""
    expect(type.rank == rank, op, f"`{name}` needs {rank} axes", got=type, want=f"{rank} axes")


def need_pixels(op: str, x: TensorType) -> None:
    """Raise unless the image has at least one channel, row and column; the batch may be empty."""
    expect(0 not in x.shape[1:], op, "the image is empty", got=x, want="[N, C, H, W]")


def axis_index(op: str, axis: int, rank: int) -> int:
    """An axis counted from the front."""
    expect(-rank <= axis < rank, op, "no such axis", got=axis, want=f"-{rank} to {rank - 1}")
    return axis % rank


def axes_index(op: str, axes: Sequence[int], rank: int) -> tuple[int, ...]:
    """Different axes counted from the front, in the order given."""
    found = tuple(axis_index(op, axis, rank) for axis in axes)
    expect(len(set(found)) == len(found), op, "an axis is named twice", got=axes, want="once each")
    return found


def window_length(length: Dim, kernel: int, stride: int, padding: int) -> Dim:
    """The number of positions of a sliding window along one axis."""
    return floor_divide(length + (2 * padding - kernel), stride) + 1


def widen(x: Array) -> Array:
    """Half precision as float32: references compute there and round once at the end."""
    return x.astype(np.float32) if x.dtype.itemsize == 2 and x.dtype.kind in "fV" else x


def float_function(op: str) -> Callable[[TensorType], TensorType]:
    """The type rule of a float function applied to each element: the type does not change."""

    def infer(x: TensorType) -> TensorType:
        need_float(op, x)
        return x

    return infer


def arithmetic(op: str) -> Callable[[TensorType, TensorType], TensorType]:
    """The type rule of a binary operation on numbers: one dtype, shapes broadcast."""

    def infer(a: TensorType, b: TensorType) -> TensorType:
        same_dtype(op, a, b)
        expect(a.dtype != "bool", op, "needs numbers", got=f"{a} and {b}", want="not bool")
        return a.reshaped(broadcast(op, a, b))

    return infer

"""Tensor types: a dtype and a shape, known before anything runs. Written ``f32[B,4096,256]``."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from samgraph.errors import GraphError
from samgraph.graph.dims import Dim, Expr, Shape, known, parse_dim
from samgraph.untrusted.text import shown

DType: TypeAlias = Literal["f32", "f16", "bf16", "f64", "i64", "i32", "u8", "bool"]
DTYPES: tuple[DType, ...] = get_args(DType)
FLOATS: frozenset[DType] = frozenset(("f32", "f16", "bf16", "f64"))
INTEGERS: frozenset[DType] = frozenset(("i64", "i32", "u8"))

Array: TypeAlias = NDArray[Any]

_NUMPY = {
    "f32": "float32", "f16": "float16", "f64": "float64",
    "i64": "int64", "i32": "int32", "u8": "uint8", "bool": "bool",
}  # fmt: skip
HIGHEST_RANK = 32  # of parsed types
_TYPE = re.compile(r"\s*(\w+)\s*\[(.*)\]\s*", re.DOTALL)


@dataclass(frozen=True, slots=True)
class TensorType:
    """The type of one value."""

    shape: Shape
    dtype: DType = "f32"

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.shape))}]"

    @property
    def rank(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def symbols(self) -> frozenset[str]:
        """The symbols its shape depends on."""
        found = (dim.symbols for dim in self.shape if isinstance(dim, Expr))
        return frozenset().union(*found)

    @property
    def lengths(self) -> tuple[int, ...]:
        """The shape as ints; `ShapeError` if it has symbols."""
        return tuple(map(known, self.shape))

    def length(self, axis: int) -> int:
        """The length of an axis as an int; `ShapeError` if it is symbolic."""
        return known(self.shape[axis])

    def reshaped(self, shape: Iterable[Dim]) -> "TensorType":
        """The same dtype with another shape."""
        return TensorType(tuple(shape), self.dtype)

    def as_dtype(self, dtype: DType) -> "TensorType":
        """The same shape with another dtype."""
        return TensorType(self.shape, dtype)


def numpy_dtype(dtype: DType) -> np.dtype[Any]:
    """The numpy dtype of a `DType`."""
    if dtype == "bf16":
        import ml_dtypes

        wide: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
        return wide
    return np.dtype(_NUMPY[dtype])


def dtype_of(array: Array) -> DType:
    """The `DType` of an array."""
    for dtype, name in _NUMPY.items():
        if array.dtype == name:
            return dtype  # type: ignore[return-value]  # the keys of _NUMPY are DTypes
    if array.dtype.name == "bfloat16":
        return "bf16"
    raise GraphError(f"arrays of `{array.dtype}` are not supported", expected=", ".join(DTYPES))


def type_of(array: Array) -> TensorType:
    """The type of an array."""
    return TensorType(tuple(int(length) for length in array.shape), dtype_of(array))


def parse_type(text: str) -> TensorType:
    """Parse a tensor type."""
    found = _TYPE.fullmatch(text)
    if found is None or found[1] not in DTYPES:
        expected = "such as `f32[B,64,256]`"
        raise GraphError(f"`{shown(text)}` is not a tensor type", expected=expected)
    dims = found[2].split(",") if found[2].strip() else []
    if len(dims) > HIGHEST_RANK:
        raise GraphError(f"a tensor has at most {HIGHEST_RANK} dimensions", got=len(dims))
    shape = tuple(parse_dim(part) for part in dims)
    if any(isinstance(dim, int) and dim < 0 for dim in shape):
        raise GraphError(f"`{shown(text)}` has a negative dimension")
    return TensorType(shape, found[1])

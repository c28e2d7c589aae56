"""An ONNX graph in the making: nodes and initializers, and dimensions as small computations.

Values are names. Names of new values have a colon, which no name of a graph has.
"""

from collections.abc import Hashable, Mapping, Sequence
from functools import reduce
from typing import Any, TypeAlias

import numpy as np
import onnx
from onnx import helper

from samgraph.graph.binding import plan_symbols
from samgraph.graph.dims import Dim, Expr, Floor, Shape
from samgraph.graph.graph import Graph
from samgraph.graph.types import Array, DType, TensorType, numpy_dtype

Name: TypeAlias = str

ELEMENT_TYPES: dict[DType, int] = {
    "f32": onnx.TensorProto.FLOAT, "f16": onnx.TensorProto.FLOAT16,
    "f64": onnx.TensorProto.DOUBLE, "bf16": onnx.TensorProto.BFLOAT16,
    "i64": onnx.TensorProto.INT64, "i32": onnx.TensorProto.INT32,
    "u8": onnx.TensorProto.UINT8, "bool": onnx.TensorProto.BOOL,
}  # fmt: skip

_LEAST_HALVED = 1024  # bytes


class Emitter:
    """Appends nodes to an ONNX graph.

    With `allows_empty` every axis of symbolic length may have length zero. Without, batches are
    at least one, and fewer shapes are computed while the model runs.
    """

    def __init__(
        self, graph: Graph, weights: Mapping[str, Array], opset: int, *, allows_empty: bool
    ) -> None:
        self.opset, self._allows_empty = opset, allows_empty
        self.nodes: list[Any] = []
        self.arrays: dict[Name, Array] = {v.name: weights[v.name] for v in graph.params}
        self._plan = plan_symbols(graph.inputs)
        self._constants: dict[tuple[str, tuple[int, ...], bytes], Name] = {}
        self._dims: dict[Dim | Floor, Name] = {}
        self.shared: dict[Hashable, list[Name]] = {}  # what rules compute once for several nodes
        self._count = 0

    def op(self, kind: str, *inputs: Name, **attributes: Any) -> Name:
        """Append a node with one output. Attributes that are None are omitted."""
        result = self._name(kind)
        given = {key: value for key, value in attributes.items() if value is not None}
        self.nodes.append(helper.make_node(kind, list(inputs), [result], name=result, **given))
        return result

    def constant(self, array: Array) -> Name:
        """An array as an initializer; equal small arrays share one."""
        key = (array.dtype.name, array.shape, array.tobytes() if array.size <= 64 else b"")
        if array.size <= 64 and key in self._constants:
            return self._constants[key]
        name = self._name("constant")
        self.arrays[name] = array
        self._constants[key] = name
        return name

    def transposed(self, value: Name) -> Name:
        """A matrix with its axes exchanged; of a weight the array itself."""
        if value not in self.arrays:
            return self.op("Transpose", value, perm=[1, 0])
        name = f"{value}:transposed"
        if name not in self.arrays:
            self.arrays[name] = np.ascontiguousarray(self.arrays[value].T)
        return name

    def integers(self, values: Sequence[int]) -> Name:
        """A vector of i64."""
        return self.constant(np.array(values, np.int64))

    def scalar(self, value: float, dtype: DType) -> Name:
        """A number of a dtype."""
        return self.constant(np.array(value, numpy_dtype(dtype)))

    def cast(self, value: Name, dtype: DType) -> Name:
        """The elements as another dtype."""
        return self.op("Cast", value, to=ELEMENT_TYPES[dtype])

    def reshape(self, value: Name, before: Shape, after: Shape) -> Name:
        """`value` of shape `before` in the shape `after`."""
        if before == after:
            return value
        short = self._short(before, after)
        if short is not None:
            return self.op("Reshape", value, self.integers(short))
        return self.op("Reshape", value, self.vector(after), allowzero=1)

    def _short(self, before: Shape, after: Shape) -> list[int] | None:
        """The shape `after` as numbers: 0 copies a length, -1 is the rest; None if impossible."""
        short: list[int] = []
        copies = 0
        for axis, dim in enumerate(after):
            if isinstance(dim, int):
                short.append(dim)
            elif axis < len(before) and before[axis] == dim:
                short.append(0)
                copies += 1
            else:
                short.append(-1)
        rest = short.count(-1)
        if 0 in after or rest > 1 or (rest and copies and self._allows_empty):
            return None
        return short

    def vector(self, dims: Sequence[Dim]) -> Name:
        """Dimensions as a vector of i64."""
        numbers = [dim for dim in dims if isinstance(dim, int)]
        if len(numbers) == len(dims):
            return self.integers(numbers)
        parts = [self._dim(dim) for dim in dims]
        return parts[0] if len(parts) == 1 else self.op("Concat", *parts, axis=0)

    def number(self, dim: Dim) -> Name:
        """One dimension as a scalar of i64."""
        if isinstance(dim, int):
            return self.constant(np.array(dim, np.int64))
        return self.op("Squeeze", self._dim(dim), self.integers([0]))

    def finish(self, outputs: Sequence[tuple[str, Name, TensorType]]) -> None:
        """Name the values that are outputs; one that is no result of a node gets a node."""
        made = {node.output[0] for node in self.nodes}
        renamed: dict[Name, str] = {}
        for name, value, _ in outputs:
            if value in made and value not in renamed:
                renamed[value] = name
            else:
                source = renamed.get(value, value)
                self.nodes.append(helper.make_node("Identity", [source], [name], name=f"{name}:"))
        for node in self.nodes:
            for field in (node.input, node.output):
                for i, value in enumerate(field):
                    field[i] = renamed.get(value, value)
        used = {value for node in self.nodes for value in node.input}
        self.arrays = {name: array for name, array in self.arrays.items() if name in used}

    def store_halves(self) -> None:
        """Store large arrays of float32 in f16, if it can hold them, and cast them first."""
        casts = []
        for name, array in list(self.arrays.items()):
            if array.dtype != np.float32 or array.nbytes < _LEAST_HALVED:
                continue
            with np.errstate(over="ignore"):
                half = array.astype(np.float16)
            if np.array_equal(np.isfinite(half), np.isfinite(array)):
                del self.arrays[name]
                self.arrays[f"{name}:half"] = half
                to = ELEMENT_TYPES["f32"]
                casts.append(helper.make_node("Cast", [f"{name}:half"], [name], f"{name}:", to=to))
        self.nodes[:0] = casts

    def _name(self, kind: str) -> Name:
        self._count += 1
        return f"{kind}:{self._count}"

    def _dim(self, dim: Dim) -> Name:
        """One dimension as a vector of one element."""
        if isinstance(dim, int):
            return self.integers([dim])
        if dim not in self._dims:
            self._dims[dim] = self._sum(dim)
        return self._dims[dim]

    def _sum(self, dim: Expr) -> Name:
        terms: list[Name] = []
        for monomial, factor in dim.terms:
            parts = [self.integers([factor])] if factor != 1 or not monomial else []
            parts += [self._atom(atom) for atom in monomial]
            terms.append(reduce(lambda a, b: self.op("Mul", a, b), parts))
        return reduce(lambda a, b: self.op("Add", a, b), terms)

    def _atom(self, atom: str | Floor) -> Name:
        if isinstance(atom, Floor):
            return self.op("Div", self._dim(atom.over), self.integers([atom.by]))
        key = Expr((((atom,), 1),))
        if key not in self._dims:
            name, axis, rest, factor = self._plan[atom]
            length = self.op("Shape", name, start=axis, end=axis + 1)
            if rest != 0:
                length = self.op("Sub", length, self._dim(rest))
            if factor != 1:
                length = self.op("Div", length, self.integers([factor]))
            self._dims[key] = length
        return self._dims[key]

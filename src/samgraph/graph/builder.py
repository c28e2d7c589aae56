"""Tracing: model code runs once on traced tensors, and every operation becomes a node.

builder = Builder("mlp")
x = builder.input("x", "f32[B,8]")
y = relu(linear(x, *linear_weights(builder.scope() / "layers" / 0)))
graph = builder.finish(y=y)
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from samgraph.errors import CheckpointError, GraphError, ShapeError
from samgraph.graph.dims import Dim, Shape
from samgraph.graph.graph import Attribute, Graph, Literal, Node, Value, check_name
from samgraph.graph.registry import infer
from samgraph.graph.types import (
    FLOATS,
    Array,
    DType,
    TensorType,
    numpy_dtype,
    parse_type,
)
from samgraph.graph.verifier import verify

if TYPE_CHECKING:
    from types import EllipsisType

Operand: TypeAlias = "Tensor | float | int | bool | Array"
Index: TypeAlias = "int | slice | EllipsisType | None"


class Tensor:
    """A traced tensor: a value of the graph being built, with operators."""

    __array_ufunc__ = None  # makes numpy defer `array + tensor` to `Tensor.__radd__`
    __hash__ = None  # type: ignore[assignment]  # `==` makes a node, so tensors have no hash

    def __init__(self, builder: Builder, value: Value) -> None:
        self.builder, self.value = builder, value

    @property
    def type(self) -> TensorType:
        """Its dtype and shape."""
        return self.value.type

    @property
    def shape(self) -> Shape:
        """Its shape; a dimension is an int or symbolic."""
        return self.value.type.shape

    @property
    def dtype(self) -> DType:
        """Its dtype."""
        return self.value.type.dtype

    def __repr__(self) -> str:
        return f"%{self.value.name}: {self.type}"

    def __bool__(self) -> bool:
        raise ShapeError("a traced tensor has no truth value while tracing", hint="use `where`")

    def __len__(self) -> int:
        if not self.shape or not isinstance(self.shape[0], int):
            raise ShapeError(f"the length of {self.type} is not known while tracing")
        return self.shape[0]

    def __add__(self, other: Operand) -> Tensor:
        return emit("add", self, other)

    def __radd__(self, other: Operand) -> Tensor:
        return emit("add", other, self)

    def __sub__(self, other: Operand) -> Tensor:
        return emit("sub", self, other)

    def __rsub__(self, other: Operand) -> Tensor:
        return emit("sub", other, self)

    def __mul__(self, other: Operand) -> Tensor:
        return emit("mul", self, other)

    def __rmul__(self, other: Operand) -> Tensor:
        return emit("mul", other, self)

    def __truediv__(self, other: Operand) -> Tensor:
        return emit("div", self, other)

    def __rtruediv__(self, other: Operand) -> Tensor:
        return emit("div", other, self)

    def __neg__(self) -> Tensor:
        return emit("mul", self, -1)

    def __matmul__(self, other: Operand) -> Tensor:
        return emit("matmul", self, other)

    def __eq__(self, other: object) -> Tensor:  # type: ignore[override]  # makes a node
        return emit("compare", self, other, how="eq")  # type: ignore[arg-type]  # checked there

    def __ne__(self, other: object) -> Tensor:  # type: ignore[override]  # makes a node
        return emit("compare", self, other, how="ne")  # type: ignore[arg-type]  # checked there

    def __lt__(self, other: Tensor | float) -> Tensor:
        return emit("compare", self, other, how="lt")

    def __le__(self, other: Tensor | float) -> Tensor:
        return emit("compare", self, other, how="le")

    def __gt__(self, other: Tensor | float) -> Tensor:
        return emit("compare", self, other, how="gt")

    def __ge__(self, other: Tensor | float) -> Tensor:
        return emit("compare", self, other, how="ge")

    def __getitem__(self, index: Index | tuple[Index, ...]) -> Tensor:
        from samgraph.graph.indexing import take

        return take(self, index if isinstance(index, tuple) else (index,))

    def reshape(self, *shape: Dim) -> Tensor:
        """The same elements in another shape; one dimension may be -1."""
        return emit("reshape", self, shape=tuple(shape))

    def transpose(self, *axes: int) -> Tensor:
        """The axes in another order."""
        return emit("transpose", self, axes=tuple(axes))


def emit(op: str, *inputs: Operand | None, **attributes: Attribute) -> Tensor:
    """Append one node and run its type rule, so that errors point at the calling line.

    Numbers and arrays become constants; a number takes the dtype of the first tensor. Inputs and
    attributes that are None are omitted.
    """
    first = next((item for item in inputs if isinstance(item, Tensor)), None)
    if first is None:
        raise ShapeError(f"`{op}` needs at least one traced tensor", got=f"{len(inputs)} inputs")
    return first.builder.emit(op, *inputs, like=first.dtype, **attributes)


class Builder:
    """Collects inputs, params and nodes while a model is traced."""

    def __init__(self, name: str = "graph") -> None:
        self.name = name
        self._inputs: dict[str, Value] = {}
        self._params: dict[str, Value] = {}
        self._nodes: list[Node] = []
        self._marks: dict[str, Value] = {}
        self._exact = False

    def input(self, name: str, type: TensorType | str) -> Tensor:
        """Declare a graph input."""
        return Tensor(self, self._declare(self._inputs, name, type))

    def param(self, name: str, type: TensorType | str) -> Tensor:
        """Declare a weight; declaring it again with the same type gives the same tensor."""
        known = self._params.get(name)
        wanted = parse_type(type) if isinstance(type, str) else type
        if known is not None and known.type == wanted:
            return Tensor(self, known)
        return Tensor(self, self._declare(self._params, name, wanted))

    def constant(self, value: Array | float | bool, dtype: DType | None = None) -> Tensor:
        """A tensor whose value is part of the graph."""
        wanted = None if dtype is None else numpy_dtype(dtype)
        literal = Literal(np.asarray(value, wanted))
        return self.emit("constant", value=literal, like=None)

    def mark(self, name: str, tensor: Tensor) -> Tensor:
        """Name a value inside the graph; the same name again moves the mark."""
        if tensor.builder is not self:
            raise GraphError(f"`{name}` marks a value of another graph")
        check_name("a mark", name)
        self._marks[name] = tensor.value
        return tensor

    def scope(self, known: Mapping[str, tuple[int, ...]] | None = None) -> Scope:
        """The root scope; `known` gives the shapes of a checkpoint's tensors, to check against."""
        return Scope(self, "", known)

    def exact(self) -> _Exact:
        """``with builder.exact():`` marks the nodes made inside to stay in float32."""
        return _Exact(self)

    def emit(
        self, op: str, *inputs: Operand | None, like: DType | None, **attributes: Attribute
    ) -> Tensor:
        """Append one node and return its result."""
        kept = {key: _plain(value) for key, value in attributes.items() if value is not None}
        try:
            values = tuple(self._operand(op, item, like) for item in inputs if item is not None)
            type = infer(op, tuple(value.type for value in values), kept)
        except (ShapeError, GraphError) as error:
            error.add_note(f"  at:       {_author()}")
            raise
        result = Value(str(len(self._nodes)), type)
        node = Node(op, values, kept, result, self._exact)
        node.mark_checked()
        self._nodes.append(node)
        return Tensor(self, result)

    def inline(self, graph: Graph, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Append the nodes of a graph, its inputs replaced by tensors; its outputs by name."""
        known: dict[str, Tensor] = {}
        for value in graph.inputs:
            if inputs[value.name].type != value.type:
                raise GraphError(
                    f"input `{value.name}` of graph `{graph.name}` does not fit",
                    got=inputs[value.name].type,
                    expected=value.type,
                )
            known[value.name] = inputs[value.name]
        for value in graph.params:
            known[value.name] = self.param(value.name, value.type)
        before = self._exact
        for node in graph:
            self._exact = before or node.exact
            operands = [known[value.name] for value in node.inputs]
            made = self.emit(node.op, *operands, like=None, **node.attributes)
            known[node.result.name] = made
        self._exact = before
        return {name: known[value.name] for name, value in graph.outputs}

    def finish(self, outputs: Mapping[str, Tensor] | None = None, /, **named: Tensor) -> Graph:
        """Freeze what was collected into a verified graph."""
        wanted = {**(outputs or {}), **named}
        if not wanted:
            raise GraphError(f"graph `{self.name}` has no output", hint="finish(y=tensor)")
        for key, tensor in wanted.items():
            if tensor.builder is not self:
                raise GraphError(f"output `{key}` belongs to another graph")
        results = tuple((key, tensor.value) for key, tensor in wanted.items())
        inputs, params = tuple(self._inputs.values()), tuple(self._params.values())
        marks = tuple(self._marks.items())
        graph = Graph(self.name, inputs, params, tuple(self._nodes), results, marks)
        verify(graph)
        return graph

    def _declare(self, table: dict[str, Value], name: str, type: TensorType | str) -> Value:
        if name in self._inputs or name in self._params:
            raise GraphError(f"`{name}` is declared twice in graph `{self.name}`")
        check_name("a param" if table is self._params else "an input", name)
        value = Value(name, parse_type(type) if isinstance(type, str) else type)
        table[name] = value
        return value

    def _operand(self, op: str, item: Operand, like: DType | None) -> Value:
        if isinstance(item, Tensor):
            if item.builder is not self:
                raise GraphError(f"`{op}`: {item!r} belongs to another graph")
            return item.value
        if isinstance(item, bool | int | float):
            return self._number(op, item, like or "f32").value
        if isinstance(item, np.ndarray | np.generic):
            return self.constant(np.asarray(item)).value
        raise ShapeError(
            f"`{op}` cannot take a `{item.__class__.__name__}`",
            expected="a traced tensor, a number or an array",
        )

    def _number(self, op: str, number: float, like: DType) -> Tensor:
        """A number as a constant of dtype `like`, which must be able to hold it."""
        wanted = numpy_dtype(like)
        if like not in FLOATS and not _fits_integer(number, like):
            raise ShapeError(f"`{op}`: {number} is not a number of {like}", hint="use `cast`")
        with np.errstate(over="ignore"):  # overflow gives infinity
            return self.constant(np.asarray(number, wanted))


class _Exact:
    """A context in which new nodes are marked to stay in float32."""

    def __init__(self, builder: Builder) -> None:
        self._builder, self._before = builder, False

    def __enter__(self) -> None:
        self._before, self._builder._exact = self._builder._exact, True

    def __exit__(self, *_: object) -> None:
        self._builder._exact = self._before


class Scope:
    """A prefix of checkpoint keys: weights read through a scope are named `path.name`."""

    __slots__ = ("builder", "known", "path")

    def __init__(
        self, builder: Builder, path: str, known: Mapping[str, tuple[int, ...]] | None
    ) -> None:
        self.builder, self.path, self.known = builder, path, known

    def __truediv__(self, name: object) -> Scope:
        return Scope(self.builder, f"{self.path}{name}.", self.known)

    def weight(self, name: str, *shape: int, dtype: DType = "f32") -> Tensor:
        """Declare the weight `path.name`; its shape must be that of the checkpoint."""
        key = self.path + name
        if self.known is not None:
            self._check(key, shape)
        return self.builder.param(key, TensorType(shape, dtype))

    def mark(self, name: str, tensor: Tensor) -> Tensor:
        """Name a value inside the graph `path.name`."""
        return self.builder.mark(self.path + name, tensor)

    def _check(self, key: str, shape: tuple[int, ...]) -> None:
        known = self.known or {}
        if key not in known:
            near = ", ".join(get_close_matches(key, known, n=2)) or "none"
            raise CheckpointError(
                f"the checkpoint has no tensor `{key}`",
                got=f"closest: {near}",
                hint="is this checkpoint for another model size?",
            )
        if tuple(known[key]) != shape:
            raise CheckpointError(
                f"tensor `{key}` has another shape", got=list(known[key]), expected=list(shape)
            )


def trace(
    name: str,
    model: Callable[..., Tensor | Mapping[str, Tensor]],
    inputs: Mapping[str, TensorType | str],
    known: Mapping[str, tuple[int, ...]] | None = None,
) -> Graph:
    """Run ``model(scope, **inputs)`` once and return its graph.

    A model that returns one tensor gives a graph whose output is called `output`.
    """
    builder = Builder(name)
    tensors = {key: builder.input(key, type) for key, type in inputs.items()}
    result = model(builder.scope(known), **tensors)
    return builder.finish({"output": result} if isinstance(result, Tensor) else dict(result))


def _plain(value: Attribute) -> Attribute:
    """An attribute as stored in a graph: Python numbers and tuples."""
    if isinstance(value, np.generic):
        return value.item()  # type: ignore[no-any-return]  # a Python number
    return tuple(map(_plain, value)) if isinstance(value, tuple | list) else value


def _fits_integer(number: float, dtype: DType) -> bool:
    if dtype == "bool":
        return number in (0, 1)
    limits = np.iinfo(numpy_dtype(dtype))
    return float(number).is_integer() and limits.min <= number <= limits.max


def _author() -> str:
    """The first stack frame outside of tracing: the line of model code that made the call."""
    frame = sys._getframe(1)
    while frame.f_back is not None:
        module = frame.f_globals.get("__name__", "")
        if not module.startswith(("samgraph.graph", "samgraph.ops")):
            break
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}, in {frame.f_code.co_name}"

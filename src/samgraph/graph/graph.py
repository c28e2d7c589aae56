"""The graph: nodes in the order they run, each with one typed result.

A graph is immutable. Passes read a graph and build a new one, so the input of a pass is still
available for comparison.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar

import numpy as np

from samgraph.errors import GraphError
from samgraph.graph.dims import Dim, Expr
from samgraph.graph.types import Array, TensorType, dtype_of


class Literal:
    """An array inside a graph. Equal arrays are equal literals; the array is read-only."""

    __slots__ = ("_digest", "array")

    def __init__(self, array: Array) -> None:
        fixed = np.array(array, order="C", copy=array.flags.writeable or None)
        fixed.flags.writeable = False
        self.array: Array = fixed
        self._digest: str | None = None

    @property
    def digest(self) -> str:
        """A short hash of dtype, shape and every byte."""
        if self._digest is None:
            state = hashlib.sha256(f"{dtype_of(self.array)}{self.array.shape}".encode())
            state.update(self.array.tobytes())
            self._digest = state.hexdigest()[:16]
        return self._digest

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Literal):
            return NotImplemented
        same_type = self.array.dtype == other.array.dtype and self.array.shape == other.array.shape
        return same_type and (self.array is other.array or self.digest == other.digest)

    def __hash__(self) -> int:
        return hash((self.array.dtype.name, self.array.shape))

    def __repr__(self) -> str:
        return f"Literal({self.array.dtype}, {self.array.shape})"


Attribute: TypeAlias = "bool | int | float | str | Expr | Literal | tuple[Attribute, ...]"


Kind = TypeVar("Kind")
_NAME = re.compile(r"[\w.\-/]+")


def check_name(kind: str, name: str) -> None:
    """Raise `GraphError` for a name that a printed graph cannot represent."""
    if not _NAME.fullmatch(name):
        raise GraphError(f"{kind} has the name `{name}`", expected="letters, digits and `_.-/`")
    if kind in ("an input", "a param", "a mark") and name.isdigit():
        raise GraphError(f"{kind} has the name `{name}`", expected="not a number alone")


@dataclass(frozen=True, slots=True)
class Value:
    """A typed value of the graph; its name is unique in the graph."""

    name: str
    type: TensorType


@dataclass(frozen=True, slots=True)
class Node:
    """``result = op(*inputs, **attributes)``.

    `exact` asks an engine to compute this node in float32 even in a lower-precision mode.
    """

    op: str
    inputs: tuple[Value, ...]
    attributes: Mapping[str, Attribute]
    result: Value
    exact: bool = False
    _symbols: frozenset[str] | None = field(default=None, init=False, compare=False, repr=False)

    @property
    def symbols_if_checked(self) -> frozenset[str] | None:
        """The symbols it uses, if its type has been checked; None before. Nodes are immutable."""
        return self._symbols

    def mark_checked(self) -> frozenset[str]:
        """Record that the result's type agrees with the type rule; returns the symbols used."""
        dims = [dim for value in self.attributes.values() for dim in dims_of(value)]
        named = (dim.symbols for dim in dims if isinstance(dim, Expr))
        found = self.result.type.symbols.union(*named)
        object.__setattr__(self, "_symbols", found)
        return found

    def integer(self, key: str) -> int:
        """The attribute `key`, an int."""
        return self._attribute(key, int)

    def integers(self, key: str) -> tuple[int, ...]:
        """The attribute `key`, a tuple of ints."""
        return self._attributes(key, int)

    def number(self, key: str) -> float:
        """The attribute `key`, an int or a float."""
        return float(self._attribute(key, float, int))

    def text(self, key: str, default: str | None = None) -> str:
        """The attribute `key`, a string; `default` where there is none."""
        if default is not None and key not in self.attributes:
            return default
        return self._attribute(key, str)

    def flag(self, key: str) -> bool:
        """The attribute `key`, a bool."""
        return self._attribute(key, bool)

    def dim(self, key: str, default: Dim | None = None) -> Dim:
        """The attribute `key`, a dimension; `default` where there is none."""
        if default is not None and key not in self.attributes:
            return default
        value = self.attributes.get(key)
        return value if isinstance(value, Expr) else self.integer(key)

    def dims(self, key: str) -> tuple[Dim, ...]:
        """The attribute `key`, a tuple of dimensions."""
        return self._attributes(key, int, Expr)

    def array(self, key: str = "value") -> Array:
        """The array of the attribute `key`, a literal; by default that of a `constant`."""
        return self._attribute(key, Literal).array

    def _attribute(self, key: str, *kinds: type[Kind]) -> Kind:
        return self._checked(key, self.attributes.get(key), kinds)

    def _attributes(self, key: str, *kinds: type[Kind]) -> tuple[Kind, ...]:
        parts = self._checked(key, self.attributes.get(key), (tuple,))
        return tuple(self._checked(key, part, kinds) for part in parts)

    def _checked(self, key: str, value: object, kinds: tuple[type[Kind], ...]) -> Kind:
        if isinstance(value, kinds) and (bool in kinds or not isinstance(value, bool)):
            return value
        names = " or ".join(kind.__name__ for kind in kinds)
        raise GraphError(f"`{key}` of `{self.op}` is not of type {names}", got=f"`{value}`")

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for nodes that compute the same thing."""
        attributes = tuple(sorted(self.attributes.items(), key=lambda item: item[0]))
        names = tuple(value.name for value in self.inputs)
        return (self.op, names, attributes, self.result.type, self.exact)


@dataclass(frozen=True, slots=True)
class Graph:
    """A whole computation: named inputs and params, nodes in order, named outputs.

    `marks` name values inside it, to inspect them and to cut it there (`passes.cut`). They compute
    nothing: a pass keeps a mark as long as its value is computed.
    """

    name: str
    inputs: tuple[Value, ...]
    params: tuple[Value, ...]
    nodes: tuple[Node, ...]
    outputs: tuple[tuple[str, Value], ...]
    marks: tuple[tuple[str, Value], ...] = ()
    _cache: dict[str, object] = field(
        default_factory=dict, init=False, compare=False, repr=False, hash=False
    )

    def __iter__(self) -> Iterator[Node]:
        return iter(self.nodes)

    def __len__(self) -> int:
        return len(self.nodes)

    def __str__(self) -> str:
        from samgraph.graph.printer import print_graph

        return print_graph(self)

    def __repr__(self) -> str:
        return f"<graph {self.name}: {len(self.nodes)} nodes, {len(self.params)} params>"

    def _repr_svg_(self) -> str:
        from samgraph.graph.picture import to_svg

        return to_svg(self)

    def input(self, name: str) -> Value:
        """The input called `name`."""
        for value in self.inputs:
            if value.name == name:
                return value
        names = ", ".join(value.name for value in self.inputs)
        raise GraphError(f"graph `{self.name}` has no input `{name}`", expected=names)

    def output(self, name: str) -> Value:
        """The output called `name`."""
        for key, value in self.outputs:
            if key == name:
                return value
        names = ", ".join(key for key, _ in self.outputs)
        raise GraphError(f"graph `{self.name}` has no output `{name}`", expected=names)

    @property
    def symbols(self) -> tuple[str, ...]:
        """The named dimensions of its inputs, sorted."""
        found: set[str] = set()
        for value in self.inputs:
            found |= value.type.symbols
        return tuple(sorted(found))

    def producers(self) -> dict[str, Node]:
        """The node that produces each value, by name."""
        made = self._cache.get("producers")
        if made is None:
            made = self._cache["producers"] = {node.result.name: node for node in self.nodes}
        return made  # type: ignore[return-value]  # the cache holds what its key says

    def is_verified(self) -> bool:
        """Whether it has passed `verify`."""
        return "verified" in self._cache

    def mark_verified(self) -> None:
        """Record that it has passed `verify`."""
        self._cache["verified"] = True

    def has(self, *ops: str) -> bool:
        """Whether any node is of one of these ops, so that passes can return early."""
        found = self._cache.get("ops")
        if found is None:
            found = self._cache["ops"] = {node.op for node in self.nodes}
        return not found.isdisjoint(ops)  # type: ignore[attr-defined]  # the cache holds what its key says

    def use_counts(self) -> dict[str, int]:
        """How often each value is read, outputs included."""
        counts: dict[str, int] = {}
        for node in self.nodes:
            for value in node.inputs:
                counts[value.name] = counts.get(value.name, 0) + 1
        for _, value in self.outputs:
            counts[value.name] = counts.get(value.name, 0) + 1
        return counts


def dims_of(attribute: Attribute) -> Iterator[Dim]:
    """Every dimension inside an attribute."""
    if isinstance(attribute, tuple):
        for part in attribute:
            yield from dims_of(part)
    elif isinstance(attribute, Expr) or (
        isinstance(attribute, int) and not isinstance(attribute, bool)
    ):
        yield attribute


def bind_attribute(attribute: Attribute, bindings: Mapping[str, int]) -> Attribute:
    """The attribute with every symbol replaced by its value."""
    if isinstance(attribute, tuple):
        return tuple(bind_attribute(part, bindings) for part in attribute)
    return attribute.evaluate(bindings) if isinstance(attribute, Expr) else attribute

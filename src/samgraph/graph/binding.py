"""Binding: the value of each symbol, given the shapes of the inputs.

A symbol is bound by a dimension that is linear in it, with no other unbound symbol: ``M``,
``M+1``, ``4096*F``, or ``4096*F+N`` once `N` is bound by another dimension.
"""

from collections.abc import Iterable, Mapping

from samgraph.errors import InputError, SamgraphError
from samgraph.graph.dims import Dim, Expr, evaluate
from samgraph.graph.graph import Graph, Value, bind_attribute, dims_of
from samgraph.graph.registry import infer
from samgraph.graph.types import TensorType


def solvable_symbols(inputs: Iterable[Value]) -> frozenset[str]:
    """The symbols that the inputs' shapes bind."""
    return frozenset(plan_symbols(inputs))


def plan_symbols(inputs: Iterable[Value]) -> dict[str, tuple[str, int, Dim, int]]:
    """How to compute each symbol: ``symbol = (input.shape[axis] - rest) / factor``.

    Values are (input name, axis, rest, factor), in an order in which they can be computed.
    """
    plan: dict[str, tuple[str, int, Dim, int]] = {}
    dims = [(v.name, axis, dim) for v in inputs for axis, dim in enumerate(v.type.shape)]
    progress = True
    while progress:
        progress = False
        for name, axis, dim in dims:
            if not isinstance(dim, Expr):
                continue
            unknown = dim.symbols - plan.keys()
            if len(unknown) != 1:
                continue
            (wanted,) = unknown
            factor = dict(dim.terms).get((wanted,))
            if factor is None:
                continue
            rest = dim - factor * Expr((((wanted,), 1),))
            if isinstance(rest, Expr) and wanted in rest.symbols:
                continue
            plan[wanted] = (name, axis, rest, factor)
            progress = True
    return plan


def bind(inputs: Iterable[Value], shapes: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
    """The value of every symbol; raises `InputError` where the shapes do not fit."""
    values = tuple(inputs)
    for value in values:
        if len(shapes[value.name]) != value.type.rank:
            raise _misfit(value, shapes[value.name])
    bindings: dict[str, int] = {}
    for symbol, (name, axis, rest, factor) in plan_symbols(values).items():
        left = rest if isinstance(rest, int) else rest.evaluate(bindings)
        bindings[symbol], remainder = divmod(shapes[name][axis] - left, factor)
        if remainder or bindings[symbol] < 0:
            value = next(value for value in values if value.name == name)
            raise _misfit(value, shapes[name])
    for value in values:
        for dim, length in zip(value.type.shape, shapes[value.name], strict=True):
            expected = dim if isinstance(dim, int) else dim.evaluate(bindings)
            if expected != length:
                raise _misfit(value, shapes[value.name], bindings)
    return bindings


def check_lengths(graph: Graph, bindings: Mapping[str, int]) -> None:
    """Raise `InputError` where a type rule does not hold for these values of the symbols.

    The rules also run while a graph is built, when `x[:, 2:]` of ``f32[B,M]`` cannot be checked.
    """
    for node in graph:
        dims = [dim for value in node.attributes.values() for dim in dims_of(value)]
        known = not any(value.type.symbols for value in (*node.inputs, node.result))
        if known and not any(isinstance(dim, Expr) for dim in dims):
            continue
        types = tuple(_at(value.type, bindings) for value in node.inputs)
        attributes = {key: bind_attribute(v, bindings) for key, v in node.attributes.items()}
        where = ", ".join(f"{name}={size}" for name, size in sorted(bindings.items()))
        problem = f"graph `{graph.name}` cannot run with {where}"
        try:
            result = infer(node.op, types, attributes)
        except SamgraphError as error:
            got = f"{error.what}, {error.got}"
            raise InputError(problem, got=got, expected=error.expected) from error
        if result != _at(node.result.type, bindings):
            raise InputError(problem, got=f"`{node.op}` gives {result}", expected=node.result.type)


def _at(type: TensorType, bindings: Mapping[str, int]) -> TensorType:
    return type.reshaped(evaluate(dim, bindings) for dim in type.shape)


def _misfit(
    value: Value, shape: tuple[int, ...], bindings: Mapping[str, int] | None = None
) -> InputError:
    known = sorted((name, n) for name, n in (bindings or {}).items() if name in value.type.symbols)
    where = ", ".join(f"{name}={size}" for name, size in known)
    return InputError(
        f"input `{value.name}` has the wrong shape",
        got=list(shape),
        expected=f"{value.type}" + (f" with {where}" if where else ""),
    )

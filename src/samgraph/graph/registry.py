"""The table of ops, filled by `samgraph.ops`, one file per op."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from typing import Any, get_type_hints

from samgraph.errors import GraphError, SamgraphError, ShapeError
from samgraph.graph.attributes import is_kind
from samgraph.graph.dims import Dim
from samgraph.graph.types import Array, TensorType

TypeRule = Callable[..., TensorType]
Work = Callable[..., Dim]


@dataclass(frozen=True, slots=True)
class Op:
    """An op: its type rule, numpy reference and cost.

    `infer` maps the types of the inputs and the attributes to the type of the result;
    `reference` maps arrays to the result by definition; `work` counts multiply-adds from the types
    of inputs and result. `attributes` is a dataclass of them where `infer` does not name each.
    """

    name: str
    infer: TypeRule
    reference: Callable[..., Array]
    work: Work | None = None
    meaning: str = ""
    attributes: type | None = None


OPS: dict[str, Op] = {}
ENGINE_OPS: dict[str, Op] = {}  # what passes of a single engine put in; no other engine has them


def register(
    name: str,
    *,
    infer: TypeRule,
    reference: Callable[..., Array],
    work: Work | None = None,
    meaning: str | None = "",
    attributes: type | None = None,
    table: dict[str, Op] = OPS,
) -> Op:
    """Add an operation to a table. Called once, at the bottom of the op's own file."""
    if name in OPS or name in ENGINE_OPS:
        raise GraphError(f"operation `{name}` is registered twice")
    table[name] = op = Op(name, infer, reference, work, (meaning or "").strip(), attributes)
    return op


def find_op(name: str) -> Op:
    """The operation called `name`."""
    op = OPS.get(name) or ENGINE_OPS.get(name)
    if op is None:
        near = get_close_matches(name, OPS, n=3)
        hint = f"did you mean {', '.join(near)}?" if near else "see `samgraph.ops`"
        raise GraphError(f"there is no operation `{name}`", hint=hint)
    return op


def infer(name: str, types: tuple[TensorType, ...], attributes: Mapping[str, Any]) -> TensorType:
    """The type of an op's result; `ShapeError` or `GraphError` if the arguments do not fit."""
    op, kinds = find_op(name), _kinds(name)
    try:
        if all(is_kind(value, kinds[key]) for key, value in attributes.items()):
            return op.infer(*types, **attributes)
    except SamgraphError:
        raise
    except (TypeError, ValueError, LookupError) as error:
        raise _misused(name, types, attributes) from error
    raise _misused(name, types, attributes)


@cache
def _kinds(name: str) -> dict[str, Any]:
    """The type of each attribute of an op, as its type rule or its dataclass says."""
    op = find_op(name)
    return get_type_hints(op.attributes or op.infer)


def _misused(name: str, types: tuple[TensorType, ...], attributes: Mapping[str, Any]) -> GraphError:
    given = [str(type) for type in types] + [f"{key}={v!r}" for key, v in attributes.items()]
    return GraphError(f"`{name}` does not take these arguments", got=", ".join(given))


def expect(ok: bool, op: str, problem: str, *, got: object, want: object) -> None:
    """Raise `ShapeError` with a uniform message unless `ok`."""
    if not ok:
        raise ShapeError(f"`{op}`: {problem}", got=got, expected=want)

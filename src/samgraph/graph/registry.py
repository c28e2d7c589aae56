"""The table of operations. `samgraph.ops` fills it, one file an op; everything else reads it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from samgraph.errors import GraphError, SamgraphError, ShapeError
from samgraph.graph.dims import Dim
from samgraph.graph.types import Array, TensorType

TypeRule = Callable[..., TensorType]
Work = Callable[..., Dim]


@dataclass(frozen=True, slots=True)
class Op:
    """Everything the rest of the system may ask about one operation.

    `infer` maps the types of the inputs and the attributes to the type of the result;
    `reference` maps arrays to the array that is right by definition; `work` counts
    multiply-adds from the types of inputs and result.
    """

    name: str
    infer: TypeRule
    reference: Callable[..., Array]
    work: Work | None = None
    meaning: str = ""


OPS: dict[str, Op] = {}


def register(
    name: str,
    *,
    infer: TypeRule,
    reference: Callable[..., Array],
    work: Work | None = None,
    meaning: str | None = "",
) -> Op:
    """Add an operation to the table. Called once, at the bottom of the op's own file."""
    if name in OPS:
        raise GraphError(f"operation `{name}` is registered twice")
    OPS[name] = op = Op(name, infer, reference, work, (meaning or "").strip())
    return op


def find_op(name: str) -> Op:
    """The operation called `name`."""
    if name not in OPS:
        near = get_close_matches(name, OPS, n=3)
        hint = f"did you mean {', '.join(near)}?" if near else "see `samgraph.ops`"
        raise GraphError(f"there is no operation `{name}`", hint=hint)
    return OPS[name]


def infer(name: str, types: tuple[TensorType, ...], attributes: Mapping[str, Any]) -> TensorType:
    """The type of the result of an operation, or a clear error."""
    op = find_op(name)
    try:
        return op.infer(*types, **attributes)
    except SamgraphError:
        raise
    except (TypeError, ValueError, AttributeError, LookupError, ArithmeticError) as error:
        given = [str(type) for type in types] + [f"{k}={v!r}" for k, v in attributes.items()]
        raise GraphError(f"`{name}` does not take these arguments", got=", ".join(given)) from error


def expect(ok: bool, op: str, problem: str, *, got: object, want: object) -> None:
    """Raise one well-formed message when a type rule is broken."""
    if not ok:
        raise ShapeError(f"`{op}`: {problem}", got=got, expected=want)

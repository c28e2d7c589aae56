"""Type checks of attributes against the annotations of an op's type rule."""

from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin


def is_kind(value: object, kind: Any) -> bool:
    """Whether `value` fits the annotation `kind`. An int is also a float; a bool is neither."""
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    origin, inside = get_origin(kind), get_args(kind)
    if origin is tuple:
        if not isinstance(value, tuple):
            return False
        kinds = inside[:1] * len(value) if inside[-1] is Ellipsis else inside
        return len(kinds) == len(value) and all(map(is_kind, value, kinds))
    if origin in (Union, UnionType):
        return any(is_kind(value, part) for part in inside)
    if origin is Literal:
        return isinstance(value, str)  # which strings are valid is checked by the type rule
    return isinstance(value, kind) and (kind is bool or not isinstance(value, bool))

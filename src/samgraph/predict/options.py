"""Options by name: one that does not exist is refused with those that are near."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from difflib import get_close_matches
from functools import wraps
from inspect import signature
from typing import Any, ParamSpec, TypeVar

from samgraph.errors import OptionError

Parameters = ParamSpec("Parameters")
Returned = TypeVar("Returned")


def refuses_unknown(function: Callable[Parameters, Returned]) -> Callable[Parameters, Returned]:
    """The function, which raises `OptionError` for a keyword it does not have, with near ones.

    Its signature stays: type checkers and `help` see every option.
    """
    known = [name for name in signature(function).parameters if name != "self"]

    @wraps(function)
    def call(*args: Parameters.args, **given: Parameters.kwargs) -> Returned:
        check_names(given, known, f"`{function.__qualname__}`")
        return function(*args, **given)

    return call


def check_names(given: Iterable[str], known: list[str], what: str) -> None:
    """Refuse a name that is not known.

    Raises:
        OptionError: There is one.
    """
    for name in given:
        if name not in known:
            near = get_close_matches(name, known, n=3)
            hint = f"did you mean `{near[0]}`?" if near else None
            expected = ", ".join(near or known)
            raise OptionError(f"{what} has no option `{name}`", expected=expected, hint=hint)


def changed(values: Mapping[str, Any], kind: type) -> dict[str, Any]:
    """The values whose names are fields of a dataclass and which are not the field's default."""
    found = {}
    for field in fields(kind):
        value = values.get(field.name, field.default)
        is_plain = isinstance(value, bool | int | float | str)  # an array has no one truth value
        if value is not field.default and not (is_plain and value == field.default):
            found[field.name] = value
    return found

"""Schemas of the JSON records that samgraph writes and reads back.

A schema is a function: it returns the validated value, or raises `SchemaError` with the path of the
invalid field. Unknown fields are errors.

    POINT = record({"x": number(0, 1), "y": number(0, 1), "name": optional(text(64))})
    POINT({"x": 0.5, "y": 2}, "point")        # SchemaError: `point.y` is 2, not within 0 and 1
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from samgraph.untrusted.text import shown

Schema = Callable[[object, str], Any]

INTEGER = re.compile(r"0|-?[1-9][0-9]{0,18}")


class SchemaError(ValueError):
    """A value does not match its schema; the message is one sentence."""


def whole(low: int, high: int) -> Schema:
    """A whole number within a range; bools are refused."""

    def check(value: object, where: str) -> int:
        if not isinstance(value, int) or isinstance(value, bool):
            _refuse(where, value, "a whole number")
        if not low <= value <= high:
            raise SchemaError(f"`{where}` is {_brief(value)}, not within {low} and {high}")
        return value

    return check


def number(low: float, high: float) -> Schema:
    """A finite number within a range, as a float."""

    def check(value: object, where: str) -> float:
        if not isinstance(value, int | float) or isinstance(value, bool):
            _refuse(where, value, "a number")
        if not low <= value <= high:
            raise SchemaError(f"`{where}` is {_brief(value)}, not within {low:g} and {high:g}")
        return float(value)

    return check


def flag(value: object, where: str) -> bool:
    """A bool; values that are merely truthy or falsy are refused."""
    if not isinstance(value, bool):
        _refuse(where, value, "true or false")
    return value


def text(longest: int) -> Schema:
    """Text of at most `longest` characters."""

    def check(value: object, where: str) -> str:
        if not isinstance(value, str) or len(value) > longest:
            _refuse(where, value, f"a text of at most {longest} characters")
        return value

    return check


def one_of(*choices: str | int) -> Schema:
    """One of a few values, of the same type."""

    def check(value: object, where: str) -> Any:
        if not any(type(value) is type(choice) and value == choice for choice in choices):
            _refuse(where, value, "one of " + ", ".join(map(repr, choices)))
        return value

    return check


def either(*schemas: Schema) -> Schema:
    """A value that any of the schemas accepts; the error is that of the last."""

    def check(value: object, where: str) -> Any:
        for schema in schemas[:-1]:
            try:
                return schema(value, where)
            except SchemaError:
                continue
        return schemas[-1](value, where)

    return check


def optional(schema: Schema) -> Schema:
    """A value that the schema accepts, or null."""
    return lambda value, where: None if value is None else schema(value, where)


def list_of(schema: Schema, most: int, *, least: int = 0) -> Schema:
    """A list of `least` to `most` items, returned as a tuple."""

    def check(value: object, where: str) -> tuple[Any, ...]:
        if not isinstance(value, list | tuple):
            _refuse(where, value, "a list")
        if not least <= len(value) <= most:
            raise SchemaError(f"`{where}` has {len(value):,} entries, not {least} to {most:,}")
        return tuple(schema(item, f"{where}[{index}]") for index, item in enumerate(value))

    return check


def mapping_of(key: Schema, value: Schema, most: int) -> Schema:
    """An object with arbitrary keys, which `key` validates as text."""

    def check(found: object, where: str) -> dict[Any, Any]:
        if not isinstance(found, Mapping):
            _refuse(where, found, "an object")
        if len(found) > most:
            raise SchemaError(f"`{where}` has {len(found):,} entries, more than {most:,}")
        return {
            key(name, f"{where}: key"): value(item, f"{where}.{shown(str(name), 40)}")
            for name, item in found.items()
        }

    return check


def integer_key(low: int, high: int) -> Schema:
    """A key that is a whole number in canonical decimal text."""

    def check(value: object, where: str) -> int:
        if not isinstance(value, str) or not INTEGER.fullmatch(value):
            _refuse(where, value, "a whole number")
        return int(whole(low, high)(int(value), where))

    return check


def record(fields: Mapping[str, Schema]) -> Schema:
    """An object with exactly these fields."""

    def check(value: object, where: str) -> dict[str, Any]:
        if not isinstance(value, Mapping):
            _refuse(where, value, "an object")
        for name in fields:
            if name not in value:
                raise SchemaError(f"`{where}` has no `{name}`")
        for name in value:
            if name not in fields:
                raise SchemaError(f"`{where}` has an unknown field `{shown(str(name), 40)}`")
        return {name: schema(value[name], f"{where}.{name}") for name, schema in fields.items()}

    return check


def _refuse(where: str, value: object, wanted: str) -> NoReturn:
    raise SchemaError(f"`{where}` is not {wanted}: {_brief(value)}")


def _brief(value: object) -> str:
    try:
        return shown(repr(value)[:200], 60)
    except (ValueError, RecursionError):  # a number of thousands of digits, deep nesting
        return f"a {type(value).__name__} that is too long to show"

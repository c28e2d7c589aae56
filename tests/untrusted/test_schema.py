"""Schemas take exactly what they say, and name what is wrong by its path."""

import re
from typing import Any

import pytest

from samgraph.untrusted.schema import (
    Schema,
    SchemaError,
    either,
    flag,
    integer_key,
    list_of,
    mapping_of,
    number,
    one_of,
    optional,
    record,
    text,
    whole,
)

POINT = record({"x": number(0, 1), "y": number(0, 1), "name": optional(text(4))})
ANYTHING: tuple[Any, ...] = (
    None, True, 0, 1, -1, 1.5, 10**400, 10**5000, "", "a", "\x1b" * 10**5, [], [[]], {}, {"x": 1},
    object(), float("nan"), float("inf"), b"x", {1: 2}, [None], "1",
)  # fmt: skip


def test_what_fits_comes_back() -> None:
    assert POINT({"x": 0, "y": 0.5, "name": None}, "p") == {"x": 0.0, "y": 0.5, "name": None}
    assert list_of(whole(0, 9), 3)([1, 2], "l") == (1, 2)
    assert mapping_of(integer_key(-5, 5), flag, 9)({"-3": True}, "m") == {-3: True}
    assert either(whole(0, 9), text(9))("name", "e") == "name"
    assert one_of(1, "a")("a", "o") == "a"


@pytest.mark.parametrize(
    ("schema", "value", "message"),
    [
        (POINT, {"x": 0, "y": 2, "name": None}, "`p.y` is 2, not within 0 and 1"),
        (POINT, {"x": 0, "y": 1}, "`p` has no `name`"),
        (POINT, {"x": 0, "y": 1, "name": "", "z": 1}, "`p` has an unknown field `z`"),
        (POINT, {"x": float("nan"), "y": 1, "name": ""}, "`p.x` is nan, not within"),
        (POINT, {"x": 1, "y": 1, "name": "abcde"}, "`p.name` is not a text of at most 4"),
        (POINT, [], "`p` is not an object: []"),
        (list_of(flag, 1), [True, True], "`p` has 2 entries, not 0 to 1"),
        (list_of(flag, 9), [True, 1], "`p[1]` is not true or false: 1"),
        (mapping_of(integer_key(0, 9), flag, 9), {"01": True}, "`p: key` is not a whole number"),
        (mapping_of(integer_key(0, 9), flag, 9), {"--1": True}, "`p: key` is not a whole number"),
        (mapping_of(text(9), flag, 1), {"a": True, "b": True}, "more than 1"),
        (one_of(1, "a"), True, "`p` is not one of 1, 'a': True"),
        (whole(0, 1), True, "`p` is not a whole number: True"),
    ],
)
def test_what_does_not_is_named(schema: Schema, value: object, message: str) -> None:
    with pytest.raises(SchemaError, match=re.escape(message)):
        schema(value, "p")


@pytest.mark.parametrize(
    "schema",
    [
        POINT,
        whole(0, 9),
        number(0, 9),
        flag,
        text(9),
        one_of("a"),
        list_of(POINT, 3),
        mapping_of(integer_key(0, 9), POINT, 3),
        either(whole(0, 9), list_of(flag, 2)),
        optional(POINT),
    ],
)
def test_nothing_else_ever_comes_out(schema: Schema) -> None:
    for value in ANYTHING:
        for nested in (value, [value], {"x": value, "y": value, "name": value}):
            try:
                schema(nested, "p")
            except SchemaError as error:
                message = str(error)
            else:
                message = ""
            assert message.isprintable()
            assert len(message) < 300

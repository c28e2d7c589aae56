"""Names are shown escaped; JSON is read strictly and written losslessly."""

import json
import os

import pytest

from samgraph.errors import ImageError, SamgraphError, printable
from samgraph.untrusted.text import json_bytes, shown, strict_json

NOT_UTF8 = os.fsdecode(b"caf\xe9\xff.png")


def test_what_could_steer_a_terminal_is_escaped() -> None:
    assert shown("a\x1b[2Jb\nc\r\x9b\u202e\x00d") == r"a\x1b[2Jb\nc\x0d\x9b\u202e\x00d"
    assert shown(NOT_UTF8) == r"caf\xe9\xff.png"
    assert shown("naïve 画像 ✓.png") == "naïve 画像 ✓.png"


def test_long_text_is_cut_in_the_middle() -> None:
    text = shown("a" * 10**6 + ".png")

    assert len(text) <= 201
    assert text.startswith("aaa")
    assert text.endswith(".png")


def test_no_error_carries_control_characters_whatever_it_was_made_of() -> None:
    name = f"\x1b]0;owned\x07{NOT_UTF8}"
    error = ImageError(f"`{name}` is bad", got=name, expected=[name], hint=f"`{name}`")

    for text in (str(error), error.what):
        assert text.replace("\n", "").isprintable()
        text.encode("utf-8")
    assert len(str(error).splitlines()) == 4


def test_lines_of_a_message_stay_lines() -> None:
    assert printable("one\n  two\tthree") == "one\n  two\\x09three"
    assert str(SamgraphError("a\n  b", got=3)) == "a\n  b\n  got:      3"


@pytest.mark.parametrize("name", [NOT_UTF8, "plain", "ünï", "\ud800", "a\nb\x1b", "\U0001f600"])
def test_names_come_back_from_json_as_they_went_in(name: str) -> None:
    raw = json_bytes({name: [name, 1.5]}, indent=2)

    assert json.loads(raw.decode("utf-8")) == {name: [name, 1.5]}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "NaN",
        "[Infinity]",
        "-Infinity",
        "1e999",
        "9" * 21,
        '{"a": 1, "a": 2}',
        "[" * 100_000,
        "[" * 33 + "]" * 33,
        '{"a":' * 100_000,
        "1" * (1 << 20) + "1",
        b"\xff\xfe",
    ],
)
def test_bad_json_is_one_kind_of_error(text: str | bytes) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        strict_json(text)

    assert isinstance(caught.value, ValueError)
    assert len(str(caught.value)) < 200


def test_good_json_is_read() -> None:
    value = {"a": [1, -(2**63), 2.5, None, True, "é\ud800"], "b": {"c": []}}

    assert strict_json(json_bytes(value)) == value


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be", "utf-32", "utf-32-le", "utf-8-sig"])
def test_json_of_ours_is_utf_8_and_nothing_else(encoding: str) -> None:
    """What `json.loads` would guess from the first bytes."""
    with pytest.raises(ValueError, match=r"codec|BOM|Expecting"):
        strict_json('{"a": 1}'.encode(encoding))

    assert strict_json('{"é": 1}'.encode()) == {"é": 1}

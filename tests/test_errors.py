"""Messages: printable, and never longer than a person would read."""

import pytest

from samgraph.errors import LONGEST_PART, OptionError, brief


@pytest.mark.parametrize("value", ["a" * 10**6, "\x1b" * 10**6, "\ud800" * 5000, ["x"] * 10**5])
def test_a_message_is_short_and_printable_whatever_it_was_made_of(value: object) -> None:
    error = OptionError(f"`{value}` is wrong", got=value, expected=value, hint=f"not {value}")

    assert len(str(error)) < 4 * (LONGEST_PART + 20)
    assert str(error).replace("\n", "").isprintable()
    assert len(error.what) <= LONGEST_PART + 1


def test_what_cannot_be_text_is_named_by_its_type() -> None:
    nest: list[object] = []
    for _ in range(100_000):
        nest = [nest]

    assert brief(10**5000) == "a int that is too long to show"
    assert brief(nest) == "a list that is too long to show"
    assert "too long to show" in str(OptionError("no", got=10**5000))
    while nest:
        nest = nest.pop()  # type: ignore[assignment]  # so that it is not freed at once

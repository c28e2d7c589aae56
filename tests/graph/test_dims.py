"""Dimensions: one canonical form, arithmetic as of numbers, text in and out."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from samgraph.errors import GraphError, ShapeError
from samgraph.graph.dims import (
    Dim,
    Expr,
    divide,
    evaluate,
    floor_divide,
    parse_dim,
    product,
    symbol,
)
from tests.ops.drawing import Draw

NAMES = ("B", "M", "N", "F")
VALUES = st.fixed_dictionaries({name: st.integers(0, 9) for name in NAMES})


@st.composite
def dims(draw: Draw, depth: int = 3) -> Dim:
    kind = (
        draw(st.sampled_from(("number", "symbol", "add", "sub", "mul", "floor"))) if depth else ""
    )
    if kind in ("", "symbol"):
        return symbol(draw(st.sampled_from(NAMES)))
    if kind == "number":
        return draw(st.integers(-6, 6))
    left = draw(dims(depth=depth - 1))
    if kind == "floor":
        return floor_divide(left, draw(st.integers(1, 5)))
    right = draw(dims(depth=depth - 1))
    return {"add": left + right, "sub": left - right, "mul": left * right}[kind]


@given(dims())
def test_a_dimension_reads_back_as_it_prints(dim: Dim) -> None:
    assert parse_dim(str(dim)) == dim


@given(dims(), dims(), VALUES)
def test_arithmetic_is_that_of_numbers(a: Dim, b: Dim, values: dict[str, int]) -> None:
    x, y = evaluate(a, values), evaluate(b, values)

    assert evaluate(a + b, values) == x + y
    assert evaluate(a - b, values) == x - y
    assert evaluate(a * b, values) == x * y
    assert evaluate(-a, values) == -x
    assert evaluate(product((a, b, 2)), values) == x * y * 2


@given(dims(), st.integers(1, 7), VALUES)
def test_floor_division_is_that_of_numbers(a: Dim, by: int, values: dict[str, int]) -> None:
    assert evaluate(floor_divide(a, by), values) == evaluate(a, values) // by


@given(dims(), dims())
def test_equal_dimensions_print_the_same(a: Dim, b: Dim) -> None:
    assert a + b == b + a
    assert str(a * b) == str(b * a)
    assert (a + b) - b == a
    assert hash(a + b) == hash(b + a)


@given(dims(), dims())
def test_an_exact_quotient_multiplies_back(a: Dim, b: Dim) -> None:
    quotient = divide(a, b)

    assert quotient is None or quotient * b == a


@settings(max_examples=50)
@given(dims(), st.sampled_from((2, 3, 4096)), st.sampled_from(("P", "Q")))
def test_a_product_can_be_divided_by_its_factors(a: Dim, number: int, name: str) -> None:
    P = symbol(name)

    assert divide(a * number, number) == a
    if a != 0:
        assert divide(a * P, P) == a


def test_examples_of_the_model() -> None:
    F, N, B, P = (symbol(name) for name in "FNBP")

    assert str(4096 * F + N) == "4096*F+N"
    assert divide(4096 * F + N - N, 4096) == F
    assert divide(2 * B * P + 2 * B, P + 1) == 2 * B
    assert divide(P + 1, P + 1) == 1
    assert divide(P, 2) is None
    assert str(floor_divide(P + 3, 2)) == "((P+3)//2)"
    assert floor_divide(4 * P + 3, 2) == 2 * P + 1
    assert (P - P) == 0
    assert isinstance(P - P, int)
    assert floor_divide(P, 2).symbols == {"P"}  # type: ignore[union-attr]  # not an int


@pytest.mark.parametrize("name", ["", "1M", "a b", "M-1", "if", "None", "ﬁ", "M\n", "é"])
def test_a_symbol_is_a_plain_word(name: str) -> None:
    with pytest.raises(GraphError, match="cannot name a dimension"):
        symbol(name)


@pytest.mark.parametrize(
    "text",
    [
        "", "+", "M M", "M**2", "M/2", "2.5", "True", "f(M)", "M.N", "[1]", "(M+N)//(B+F)", "M//0",
        "'M'", "lambda: 1", "M if N else B", "(" * 300 + "M" + ")" * 300, "9" * 5000, "M//N", "\0",
        "*".join(["(a+b+c+d+e+f+g+h)"] * 40), "~M", "not M", "M<N",
    ],
)  # fmt: skip
def test_text_that_is_no_dimension_is_an_error_of_ours(text: str) -> None:
    with pytest.raises(GraphError, match="is not a dimension"):
        parse_dim(text)


def test_division_that_has_no_meaning_is_refused() -> None:
    M, N = symbol("M"), symbol("N")

    with pytest.raises(ShapeError, match="cannot be divided by `N`"):
        floor_divide(M, N)
    with pytest.raises(ShapeError, match="cannot be divided by zero"):
        floor_divide(4, 0)
    with pytest.raises(ShapeError, match="cannot be divided by `0`"):
        floor_divide(M, 0)
    assert divide(M, 0) is None


def test_an_expression_is_immutable_and_hashable() -> None:
    M = symbol("M")

    assert {M: 1}[symbol("M")] == 1
    with pytest.raises(AttributeError):
        M.terms = ()  # type: ignore[misc]  # that is the point
    assert isinstance(M + 1, Expr)

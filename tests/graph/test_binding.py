"""Symbols get their values from the shapes of the inputs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samgraph import ops
from samgraph.errors import InputError
from samgraph.graph import Builder, Value, parse_type
from samgraph.graph.binding import bind, check_lengths, solvable_symbols


def values(*types: str) -> list[Value]:
    return [Value(f"x{number}", parse_type(text)) for number, text in enumerate(types)]


@given(st.integers(0, 9), st.integers(0, 9))
def test_a_symbol_alone_or_times_a_factor_is_told(F: int, N: int) -> None:
    inputs = values("f32[2,N]", "f32[4096*F+N,64]", "i64[F+1]")

    found = bind(inputs, {"x0": (2, N), "x1": (4096 * F + N, 64), "x2": (F + 1,)})

    assert found == {"F": F, "N": N}


def test_one_dimension_can_tell_one_unknown_only() -> None:
    assert solvable_symbols(values("f32[F+N]")) == set()
    assert solvable_symbols(values("f32[F+N]", "f32[N]")) == {"F", "N"}
    assert solvable_symbols(values("f32[M*M]")) == set()
    assert solvable_symbols(values("f32[2*M+1]")) == {"M"}
    assert solvable_symbols(values("f32[M//2]")) == set()
    assert solvable_symbols(values("f32[M+M//2]")) == set()


@pytest.mark.parametrize(
    ("types", "shapes", "message"),
    [
        (["f32[2]"], [(3,)], "input `x0` has the wrong shape\n  got:      [3]\n  expected: f32[2]"),
        (
            ["f32[M]", "f32[M]"],
            [(3,), (4,)],
            "input `x1` has the wrong shape\n  got:      [4]\n  expected: f32[M] with M=3",
        ),
        (
            ["f32[2*M]"],
            [(5,)],
            "input `x0` has the wrong shape\n  got:      [5]\n  expected: f32[2*M]",
        ),
        (
            ["f32[M+4]"],
            [(3,)],
            "input `x0` has the wrong shape\n  got:      [3]\n  expected: f32[M+4]",
        ),
        (
            ["f32[M]"],
            [(3, 1)],
            "input `x0` has the wrong shape\n  got:      [3, 1]\n  expected: f32[M]",
        ),
    ],
)
def test_a_shape_that_does_not_fit_is_named(
    types: list[str], shapes: list[tuple[int, ...]], message: str
) -> None:
    given_shapes = {f"x{number}": shape for number, shape in enumerate(shapes)}

    with pytest.raises(InputError) as caught:
        bind(values(*types), given_shapes)

    assert str(caught.value) == message


def test_lengths_that_break_a_rule_are_found_before_the_run() -> None:
    builder = Builder("cut")
    x = builder.input("x", "f32[M,4]")
    graph = builder.finish(y=ops.reduce(x[2:5], (0,), how="max"))

    check_lengths(graph, {"M": 5})
    with pytest.raises(InputError) as caught:
        check_lengths(graph, {"M": 4})

    assert str(caught.value) == (
        "graph `cut` cannot run with M=4\n"
        "  got:      `slice`: outside the tensor, 2:5 of 4\n"
        "  expected: 0 <= start <= end <= length"
    )

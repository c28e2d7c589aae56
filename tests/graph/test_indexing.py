"""Indexing of traced tensors is that of numpy, for what is taken; the rest is refused."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from samgraph.errors import ShapeError
from samgraph.graph import Builder, parse_type, symbol
from samgraph.graph.evaluation import evaluate_graph
from samgraph.graph.types import type_of
from tests.ops.drawing import Draw, flag, number


@st.composite
def indexed(draw: Draw) -> tuple[tuple[int, ...], tuple[Any, ...]]:
    """A shape and an index that numpy takes."""
    shape = tuple(number(draw, 1, 5) for _ in range(number(draw, 1, 4)))
    parts: list[Any] = []
    for length in shape[: number(draw, 0, len(shape))]:
        if flag(draw):
            parts.append(number(draw, -length, length - 1))
        else:
            edge = st.none() | st.integers(-7, 7)
            parts.append(slice(draw(edge), draw(edge), draw(st.none() | st.integers(1, 3))))
    if flag(draw):
        parts.insert(number(draw, 0, len(parts)), None)
    if flag(draw):
        parts.append(Ellipsis)
    return shape, tuple(parts)


@settings(max_examples=300)
@given(indexed())
def test_an_index_takes_what_numpy_takes(drawn: tuple[tuple[int, ...], tuple[Any, ...]]) -> None:
    shape, index = drawn
    array = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    builder = Builder()
    x = builder.input("x", type_of(array))
    expected = array[index]

    y = x[index]
    graph = builder.finish(y=y)

    np.testing.assert_array_equal(evaluate_graph(graph, {"x": array}, {})["y"], expected)
    assert y.type == type_of(expected)


@pytest.mark.parametrize(
    ("index", "expected"),
    [
        (np.s_[2:], "f32[M-2,N,4]"),
        (np.s_[:-1], "f32[M-1,N,4]"),
        (np.s_[-1], "f32[N,4]"),
        (np.s_[:, 1], "f32[M,4]"),
        (np.s_[..., ::2], "f32[M,N,2]"),
        (np.s_[::2], "f32[((M+1)//2),N,4]"),
        (np.s_[:, None, :3], "f32[M,1,3,4]"),
        (np.s_[:], "f32[M,N,4]"),
        (np.s_[..., 0], "f32[M,N]"),
    ],
)
def test_symbols_flow_through_an_index(index: Any, expected: str) -> None:
    x = Builder().input("x", "f32[M,N,4]")

    assert x[index].type == parse_type(expected)


def test_a_symbolic_edge_may_stand_in_a_slice() -> None:
    builder = Builder()
    M, N = symbol("M"), symbol("N")
    x, n = builder.input("x", "f32[M+N,4]"), builder.input("n", "f32[N]")
    graph = builder.finish(y=x[:M], z=x[M:], n=n)
    array = np.arange(20, dtype=np.float32).reshape(5, 4)

    found = evaluate_graph(graph, {"x": array, "n": np.ones(2, np.float32)}, {"M": 3, "N": 2})

    assert graph.output("z").type == parse_type("f32[N,4]")
    np.testing.assert_array_equal(found["y"], array[:3])
    np.testing.assert_array_equal(found["z"], array[3:])
    assert N in graph.output("z").type.shape


@pytest.mark.parametrize(
    ("index", "message"),
    [
        (5, "index 5 is outside an axis of length 2"),
        (-3, "index -3 is outside an axis of length 2"),
        (np.s_[0, 0, 0], "too many indices"),
        (np.s_[..., ...], "too many indices"),
        (np.s_[::-1], "a slice needs a positive step"),
        ([0, 1], "only ints, slices, None and `...` index a tensor"),
        ("a", "only ints"),
        (True, "only ints"),
        (1.0, "only ints"),
    ],
)
def test_other_indices_are_refused(index: Any, message: str) -> None:
    x = Builder().input("x", "f32[2,3]")

    with pytest.raises(ShapeError) as caught:
        x[index]

    assert message in str(caught.value)

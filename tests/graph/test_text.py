"""A printed graph reads back to an equal graph; text that is no graph is a `GraphError`."""

import random
from textwrap import dedent

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from samgraph import ops
from samgraph.errors import GraphError
from samgraph.graph import Builder, Graph, Literal, parse_graph, print_graph, symbol
from samgraph.graph.types import DTYPES, DType, numpy_dtype
from tests.graph.random_graphs import graphs
from tests.ops.agreement import join
from tests.ops.cases import CASES, Case, cases

SMALL = dedent("""\
    graph mlp(
      %x: f32[B,8],
      param %layers.0.weight: f32[4,8],
    ) {
      %0: f32[B,4] = linear(%x, %layers.0.weight)
      %1: f32[B,4] = exact relu(%0)
      return y=%1
    }""")


def small() -> Graph:
    builder = Builder("mlp")
    x = builder.input("x", "f32[B,8]")
    hidden = ops.linear(x, (builder.scope() / "layers" / 0).weight("weight", 4, 8))
    with builder.exact():
        y = ops.relu(hidden)
    return builder.finish(y=y)


def test_a_small_graph_prints_as_a_person_would_write_it() -> None:
    assert str(small()) == SMALL
    assert parse_graph(SMALL) == small()


def test_marks_stand_before_the_return() -> None:
    builder = Builder("marked")
    x = builder.input("x", "f32[4]")
    y = (builder.scope() / "layers" / 0).mark("out", ops.relu(x))
    graph = builder.finish(y=ops.exp(y))

    lines = str(graph).splitlines()

    assert lines[-3:] == ["  mark layers.0.out=%0", "  return y=%1", "}"]
    assert parse_graph(str(graph)) == graph != small()


@settings(max_examples=60)
@given(graphs())
def test_a_graph_reads_back_as_it_prints(graph: Graph) -> None:
    text = print_graph(graph, data=True)

    again = parse_graph(text)

    assert again == graph
    assert print_graph(again, data=True) == text


@pytest.mark.parametrize("op", sorted(CASES))
def test_every_op_reads_back_as_it_prints(op: str) -> None:
    @settings(max_examples=3)
    @given(st.lists(cases(op, ("f32", "f16")), min_size=8, max_size=8))
    def check(drawn: list[Case]) -> None:
        graph, _, _ = join(drawn)
        assert parse_graph(print_graph(graph, data=True)) == graph

    check()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (3,), (2, 0), (5, 5), (1, 1)])
def test_constants_of_every_dtype_read_back(dtype: DType, shape: tuple[int, ...]) -> None:
    array = np.random.default_rng(1).integers(0, 2, shape).astype(numpy_dtype(dtype))
    if dtype in ("f32", "f64", "f16"):
        array = (array / 3).astype(array.dtype)
    builder = Builder()
    graph = builder.finish(y=builder.constant(array))

    again = parse_graph(print_graph(graph, data=True))

    literal = again.nodes[0].attributes["value"]
    assert isinstance(literal, Literal)
    assert literal.array.dtype == array.dtype
    assert literal.array.tobytes() == array.tobytes()


def test_infinities_and_signed_zeros_read_back() -> None:
    builder = Builder()
    odd = np.array([np.inf, -np.inf, -0.0, 1e-45, 3.4e38], np.float32)
    wide = np.array([np.inf, -0.0, 1.5], ml_dtypes.bfloat16)
    x = builder.input("x", "f32[2]")
    graph = builder.finish(
        a=builder.constant(odd),
        b=builder.constant(wide),
        c=ops.clip(x, -np.inf, np.inf),
        d=ops.pad(x, (1,), (0,), float("-inf")),
    )

    assert parse_graph(print_graph(graph)) == graph


def test_symbols_in_attributes_read_back() -> None:
    builder = Builder()
    F, N = symbol("F"), symbol("N")
    x = builder.input("x", "f32[1,16*F+N,8]")
    n = builder.input("n", "f32[N]")
    rotated = ops.axial_rope(x, grid=(4, 4), theta=10000.0, heads=2, unrotated=N)
    image = ops.expand(n.reshape(1, 1, 1, N), 1, 1, 2 * F + 1, N)
    graph = builder.finish(y=rotated, z=image, w=x[:, : 16 * F])

    assert parse_graph(str(graph)) == graph
    assert "unrotated=N" in str(graph)


def test_large_constants_need_their_bytes() -> None:
    builder = Builder()
    array = np.arange(100.0)
    graph = builder.finish(y=builder.constant(array))
    digest = Literal(array).digest

    with pytest.raises(GraphError, match=f"the bytes of constant #{digest} are not in the text"):
        parse_graph(str(graph))

    assert parse_graph(str(graph), {digest: array}) == graph


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("graph mlp(", "grph mlp(", "line 1 cannot be read"),
        ("graph mlp(", "graph m l p(", "line 1 cannot be read"),
        ("%x: f32[B,8],", "%x: f33[B,8],", "`f33[B,8]` is not a tensor type"),
        ("%x: f32[B,8],", "x: f32[B,8],", "line 2 is not a declaration"),
        ("%x: f32[B,8],", "%x: f32[B,7],", "the last axis of `x` must match"),
        (") {", "", "is not a declaration"),
        ("linear(", "lineer(", "there is no operation `lineer`"),
        ("%0: f32[B,4] = lin", "%0: f32[B,5] = lin", "the type rule of `linear` gives f32[B,4]"),
        ("relu(%0)", "relu(%7)", "line 6: %7 is used before it is defined"),
        ("relu(%0)", "relu(%0, 3)", "an argument that cannot be read"),
        ("relu(%0)", "relu(%0, slope=1)", "`relu` does not take these arguments"),
        ("return y=%1", "return y=%9", "returns an unknown value"),
        ("return y=%1", "mark a=%9\nreturn y=%1", "marks an unknown value"),
        ("return y=%1", "mark y=%0\nreturn y=%1", "the mark `y` of graph `mlp` is named like"),
        ("return y=%1", "return y=%1, y=%0", "needs outputs with different names"),
        ("  return y=%1\n", "", "line 7 is not a node"),
        ("\n}", "", "the text ends without a closing brace"),
        ("\n}", "\n}\nmore", "line 9 is after the closing brace"),
        ("relu(%0)", 'relu(%0, a="x", a="y")', "gives `a` twice"),
        ("%x: f32[B,8],", "%x: f32[B+C,8],", "no input of graph `mlp` binds `B`"),
        ("param %layers.0.weight", "param %layers,0", "line 3 is not a declaration"),
    ],
)
def test_damaged_text_says_what_is_wrong(old: str, new: str, message: str) -> None:
    assert old in SMALL

    with pytest.raises(GraphError) as caught:
        parse_graph(SMALL.replace(old, new, 1))

    assert message in str(caught.value)


@pytest.mark.parametrize("text", ["", "\n\n", "graph x(", "graph x(\n) {", "graph x(\n) {\n}", "#"])
def test_unfinished_text_is_refused(text: str) -> None:
    with pytest.raises(GraphError):
        parse_graph(text)


@pytest.mark.parametrize(
    "data",
    [
        "#0123 f64[3] xyz",
        "#0123 f64[3]",
        "#zz f64[3] 00",
        "#0123 f64[99999999999999999999] c$@<P0000",
        "#0123 f9[3] c$@<P0000",
        "#0123 f64[M] c$@<P0000",
    ],
)
def test_damaged_bytes_are_refused(data: str) -> None:
    with pytest.raises(GraphError):
        parse_graph(f"{SMALL}\n{data}")


def test_bytes_of_another_constant_are_refused() -> None:
    builder = Builder()
    builder2 = Builder()
    one = print_graph(builder.finish(y=builder.constant(np.arange(30))), data=True)
    two = print_graph(builder2.finish(y=builder2.constant(np.arange(31))), data=True)
    swapped = one.splitlines()[-1].split(" ")[0] + " " + two.splitlines()[-1].split(" ", 1)[1]

    with pytest.raises(GraphError, match="are of another constant"):
        parse_graph("\n".join([*one.splitlines()[:-1], swapped]))


def test_mutated_text_is_a_graph_or_a_graph_error() -> None:
    """Two thousand mutants of real texts: never another exception."""
    seeds = [SMALL, *(print_graph(join_one(op), data=True) for op in sorted(CASES))]
    pieces = sorted({piece for text in seeds for piece in text.replace("\n", " ").split()})
    rng = random.Random(3)
    accepted = 0
    for _ in range(2000):
        text = mutate(rng, rng.choice(seeds), pieces)
        try:
            parse_graph(text)
            accepted += 1
        except GraphError:
            pass
    assert accepted < 1000


def join_one(op: str) -> Graph:
    """A graph of one use of an op."""
    found: list[Case] = []

    @settings(max_examples=5)
    @given(cases(op, ("f32",)))
    def draw(case: Case) -> None:
        found.append(case)

    draw()
    return join(found[-1:])[0]


def mutate(rng: random.Random, text: str, pieces: list[str]) -> str:
    """The text with one to three things changed."""
    letters = "%#(){}[],=.:+-*/0123456789abfgMN \"'\n\\\0é"
    for _ in range(rng.randint(1, 3)):
        at, end = sorted((rng.randrange(len(text) + 1), rng.randrange(len(text) + 1)))
        end = min(end, at + rng.choice((1, 1, 2, 8)))
        middle = rng.choice(("", rng.choice(letters), rng.choice(pieces), text[at:end] * 2))
        text = text[:at] + middle + text[end:]
    return text

"""Graph text from people who mean harm: a graph or a `GraphError`, at once."""

import base64
import time
import tracemalloc
import zlib

import pytest

import samgraph.ops  # noqa: F401 (fills the table of ops)
from samgraph.errors import GraphError, ShapeError
from samgraph.graph.dims import Expr, parse_dim, product, symbol
from samgraph.graph.parser import parse_graph

DIGITS = "f" * 500_000


def graph(*nodes: str, inputs: str = "%x: f32[N],", after: str = "") -> str:
    lines = [f"  {line}" for line in nodes]
    return "\n".join(["graph g(", f"  {inputs}", ") {", *lines, "  return z=%x", "}", after])


def node(shape: str, op: str = "reshape") -> str:
    return graph(f"%0: f32[1] = {op}(%x, shape={shape})")


def polynomials() -> str:
    """A tensor whose four sides are sums of a hundred symbols each."""
    names = [[f"{letter}{i}" for i in range(100)] for letter in "ABCD"]
    inputs = "\n".join(f"  %i{name}: f32[{name}]," for row in names for name in row)
    whole = ",".join("+".join(row) for row in names)
    return graph("%0: f32[1] = reshape(%x, shape=(1,))", inputs=f"%x: f32[{whole}],\n{inputs}")


def bomb(type_text: str) -> str:
    data = base64.b85encode(zlib.compress(bytes(1 << 28), 9)).decode()
    return graph(after="\n".join(f"#{n:x} {type_text} {data}" for n in range(4)))


TEXTS = {
    "four polynomials": polynomials(),
    "product of a megabyte": node(f"(0x{DIGITS}*0x{DIGITS},)"),
    "number of a megabyte": node(f"(0x{DIGITS},)"),
    "number of 10,000 digits": node(f"(0x{DIGITS[:9000]},)"),
    "number in an attribute": graph(f"%0: f32[N] = relu(%x, alpha=0x{DIGITS[:9000]})"),
    "dimension of a megabyte": graph(inputs=f"%x: f32[0x{DIGITS}],"),
    "power by product": graph(inputs=f"%x: f32[{'*'.join(['9'] * 4900)}],"),
    "degree without end": graph(inputs=f"%x: f32[{'*'.join(['N'] * 4900)}],"),
    "terms without end": graph(inputs=f"%x: f32[{'+'.join(f'N{i}' for i in range(1500))}],"),
    "axes without end": graph(inputs=f"%x: f32[{','.join(['9' * 18] * 100_000)}],"),
    "floors in floors": graph(inputs=f"%x: f32[{'(' * 200}N{'+1)//7' * 200}],"),
    "lists in lists": node("(" * 50_000 + ")" * 50_000),
    "lists in lists of two": node("(1," * 900 + "1" + ")" * 900),
    "signs": node("(" + "-" * 9000 + "1,)"),
    "words": node("(" + "not " * 2000 + "1,)"),
    "long text": node('"' + "a" * 1_000_000 + '"'),
    "brackets without end": node("(" * 300_000),
    "name of a megabyte": graph(f"%{'a' * 1_000_000}: f32[1] = relu(%y)"),
    "constants that unpack": bomb("u8[268435456]"),
    "more bytes than said": bomb("u8[10]"),
    "control characters": graph("%0: f32[\x1b[2J] = relu(%x)"),
}


@pytest.mark.parametrize("name", sorted(TEXTS))
def test_a_hostile_text_is_refused_at_once(name: str) -> None:
    tracemalloc.start()
    start = time.process_time()
    with pytest.raises(GraphError) as caught:
        parse_graph(TEXTS[name])
    took = time.process_time() - start
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert took < 5  # a second, but for the watch on memory
    assert peak < 64e6 + 20 * len(TEXTS[name])
    assert len(str(caught.value)) < 4000
    assert str(caught.value).replace("\n", "").isprintable()


def test_arithmetic_of_dimensions_is_bounded_too() -> None:
    """Shape rules multiply what the text says."""
    rows = [sum((symbol(f"{c}{i}") for i in range(1, 40)), symbol(f"{c}0")) for c in "AB"]
    assert all(isinstance(row, Expr) for row in rows)
    with pytest.raises(ShapeError, match="too many terms"):
        product(tuple(rows))
    large = symbol("N") * (2**62)
    with pytest.raises(ShapeError, match="63 bits"):
        large * 2
    with pytest.raises(ShapeError, match="degree"):
        product((symbol("N"),) * 33)


@pytest.mark.parametrize("text", ["4096*F+4*Q", "((N+3)//4)", "(((N+1)//2)+1)//2", "B*P*T", "-3+N"])
def test_real_dimensions_are_far_within(text: str) -> None:
    assert str(parse_dim(str(parse_dim(text)))) == str(parse_dim(text))

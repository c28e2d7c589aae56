"""Which ways of writing attention are recognised, and which must be left alone."""

from collections.abc import Callable

import numpy as np
import pytest

from samgraph import ops
from samgraph.graph import Builder, Graph, Node, Tensor
from samgraph.passes import PASSES, optimise
from tests.passes.test_meaning import change, weights_of
from tests.tolerances import ALGEBRAIC_PASS

Write = Callable[[Tensor, Tensor, Tensor], Tensor]
T, D = 5, 8


def graph_of(write: Write, *, batch: str = "B,") -> Graph:
    builder = Builder("attention")
    q, k, v = (builder.input(name, f"f64[{batch}M,{D}]") for name in "qkv")
    return builder.finish(y=write(q, k, v))


def flipped(k: Tensor) -> Tensor:
    rank = len(k.shape)
    return ops.transpose(k, *range(rank - 2), rank - 1, rank - 2)


def fused(graph: Graph) -> tuple[Graph, Node | None]:
    after = optimise(graph, [PASSES["fuse_attention"], PASSES["simplify_movement"]])
    return after, next((node for node in after if node.op == "attention"), None)


def soft(scores: Tensor, v: Tensor) -> Tensor:
    return ops.softmax(scores) @ v


FUSED: dict[str, tuple[Write, float]] = {
    "no scale": (lambda q, k, v: soft(q @ flipped(k), v), 1.0),
    "scale behind": (lambda q, k, v: soft(q @ flipped(k) * 0.25, v), 0.25),
    "scale in front": (lambda q, k, v: soft(0.25 * (q @ flipped(k)), v), 0.25),
    "division": (lambda q, k, v: soft(q @ flipped(k) / 8, v), 0.125),
    "mask behind": (lambda q, k, v: soft(q @ flipped(k) * 0.5 + q[..., :1], v), 0.5),
    "mask in front": (lambda q, k, v: soft(q[..., :1] + q @ flipped(k) * 0.5, v), 0.5),
    "a product as mask": (
        lambda q, k, v: soft(ops.sin(q)[..., :1] * 2 + q @ flipped(k) * 0.5, v),
        0.5,
    ),
    "mask of one row": (lambda q, k, v: soft(q @ flipped(k) + np.ones(1), v), 1.0),
    "axis from the front": (lambda q, k, v: ops.softmax(q @ flipped(k), len(q.shape) - 1) @ v, 1.0),
    "keys transposed elsewhere": (lambda q, k, v: soft(q @ ops.sin(flipped(k)), v), 1.0),
}


@pytest.mark.parametrize("batch", ["", "B,", "B,2,"])
@pytest.mark.parametrize("name", sorted(FUSED))
def test_a_way_of_writing_attention_is_recognised(name: str, batch: str) -> None:
    write, scale = FUSED[name]
    graph = graph_of(write, batch=batch)

    after, node = fused(graph)

    assert node is not None, after
    assert node.attributes["scale"] == scale
    assert node.attributes["heads"] == 1
    assert change(graph, after, weights_of(graph)) <= ALGEBRAIC_PASS


def _twice(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    weights = ops.softmax(q @ flipped(k))
    return weights @ v + ops.reduce(weights, (-1,), how="max", keep=True)


def _scores_twice(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = q @ flipped(k)
    return soft(scores, v) + ops.reduce(scores, (-1,), how="max", keep=True)


def _wide_mask(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """One row of scores, and a mask that makes many of it."""
    return soft(q[..., :1, :] @ flipped(k) + ops.sin(q)[..., :1], v)


LEFT_ALONE: dict[str, Write] = {
    "weights read twice": _twice,
    "scores read twice": _scores_twice,
    "softmax over queries": lambda q, k, v: ops.softmax(q @ flipped(k), -2) @ v,
    "mask that adds rows": _wide_mask,
    "negative scale": lambda q, k, v: soft(q @ flipped(k) * -1, v),
    "scale of zero": lambda q, k, v: soft(q @ flipped(k) * 0, v),
    "division by zero": lambda q, k, v: soft(q @ flipped(k) / 0, v),
    "number divided by scores": lambda q, k, v: soft(2 / (q @ flipped(k) + 50), v),
    "scale that is a tensor": lambda q, k, v: soft(q @ flipped(k) * ops.sin(q)[..., :1], v),
    "softmax scaled behind": lambda q, k, v: (ops.softmax(q @ flipped(k)) * 2) @ v,
    "scale over mask": lambda q, k, v: soft((q @ flipped(k) + q[..., :1]) * 0.5, v),
}


@pytest.mark.parametrize("name", sorted(LEFT_ALONE))
def test_what_only_looks_like_attention_is_left_alone(name: str) -> None:
    graph = graph_of(LEFT_ALONE[name])

    after, node = fused(graph)

    assert node is None, after
    if name != "division by zero":  # there everything is NaN
        assert change(graph, after, weights_of(graph)) == 0


def heads_of(x: Tensor, heads: int) -> Tensor:
    B, M, C = x.shape
    return ops.transpose(x.reshape(B, M, heads, int(str(C)) // heads), 0, 2, 1, 3)


def joined(y: Tensor) -> Tensor:
    B, heads, M, size = y.shape
    return ops.transpose(y, 0, 2, 1, 3).reshape(B, M, int(str(heads)) * int(str(size)))


@pytest.mark.parametrize("mask", [None, "f64[M,M]", "f64[B,2,1,M]", "f64[2,M,1]", "f64[1]"])
def test_heads_go_into_the_op(mask: str | None) -> None:
    builder = Builder("heads")
    q, k, v = (heads_of(builder.input(name, "f64[B,M,8]"), 2) for name in "qkv")
    scores = q @ flipped(k) * 0.5
    if mask:
        scores = scores + builder.input("mask", mask)
    graph = builder.finish(y=joined(soft(scores, v)))

    after, node = fused(graph)

    assert node is not None
    assert node.attributes["heads"] == 2
    assert not any(other.op == "transpose" for other in after)
    assert change(graph, after, weights_of(graph)) <= ALGEBRAIC_PASS


def test_heads_that_are_not_joined_again_stay_apart() -> None:
    builder = Builder("heads")
    q, k, v = (heads_of(builder.input(name, "f64[B,M,8]"), 2) for name in "qkv")
    graph = builder.finish(y=soft(q @ flipped(k), v))

    after, node = fused(graph)

    assert node is not None
    assert node.attributes["heads"] == 1
    assert change(graph, after, weights_of(graph)) <= ALGEBRAIC_PASS


def test_heads_of_another_split_stay_apart() -> None:
    builder = Builder("heads")
    q, k, v = (heads_of(builder.input(name, "f64[B,M,8]"), 2) for name in "qkv")
    B, _, M, _ = q.shape
    y = ops.transpose(soft(q @ flipped(k), v), 0, 2, 1, 3).reshape(B, M * 2, 4)  # not joined
    graph = builder.finish(y=y)

    after, _ = fused(graph)

    assert change(graph, after, weights_of(graph)) <= ALGEBRAIC_PASS


def test_attention_is_exact_when_a_part_of_it_was() -> None:
    builder = Builder("exact")
    q, k, v = (builder.input(name, "f64[B,M,8]") for name in "qkv")
    with builder.exact():
        weights = ops.softmax(q @ flipped(k))
    graph = builder.finish(y=weights @ v)

    _, node = fused(graph)

    assert node is not None
    assert node.exact


def test_movement_that_is_joined_stays_exact() -> None:
    builder = Builder("exact")
    x = builder.input("x", "f64[2,M,6]")
    with builder.exact():
        y = ops.sin(x).reshape(2, -1, 2, 3).reshape(2, -1, 3, 2)
        z = ops.transpose(ops.transpose(y, 1, 0, 2, 3), 2, 0, 1, 3)
    after = optimise(builder.finish(y=y, z=z), [PASSES["simplify_movement"]])

    assert all(node.exact for node in after)


@pytest.mark.parametrize("mask", [False, True])
def test_absorbing_a_value_keeps_an_activation_behind_it(mask: bool) -> None:
    builder = Builder("absorb")
    q, m = builder.input("q", "f64[B,M,8]"), builder.input("m", "f64[B,M,4]")
    value = ops.linear(m, builder.param("wv", "f64[8,4]"), builder.param("bv", "f64[8]"))
    bias = builder.input("bias", "f64[M,M]") if mask else None
    y = ops.attention(q, q, value, bias, heads=1, scale=0.3)
    out = ops.gelu(ops.linear(y, builder.param("wo", "f64[3,8]")))
    graph = builder.finish(y=out)

    steps = [PASSES["fuse_linear_activation"], PASSES["absorb_value_projection"]]
    after = optimise(graph, steps)

    assert [node.op for node in after] == ["attention", "matmul", "linear", "linear"]
    assert after.nodes[-1].attributes["activation"] == "gelu"
    assert change(graph, after, weights_of(graph)) <= ALGEBRAIC_PASS


@pytest.mark.parametrize("row", ["f64[1,6,4]", "f64[1,1,4]", "f64[6,1]"])
def test_queries_that_are_repeated_in_any_way_keep_their_number(row: str) -> None:
    """Only a batch of one is read as it is; repeated tokens and channels are not."""
    builder = Builder("repeated")
    k = builder.input("k", "f64[B,1,4]")
    q = ops.expand(builder.input("q", row), k.shape[0], 6, 4)
    y = ops.attention(q, k, ops.sin(k), heads=1, scale=0.5)
    graph = builder.finish(y=ops.linear(y, builder.param("wo", "f64[2,4]")))

    after = optimise(graph, [PASSES["absorb_query_projection"]])

    assert not any(node.op == "attention" for node in after)
    assert ("expand" in {node.op for node in after}) == (row != "f64[1,6,4]")
    assert change(graph, after, weights_of(graph)) <= ALGEBRAIC_PASS


def test_a_value_with_an_activation_is_not_absorbed() -> None:
    builder = Builder("relu")
    q, m = builder.input("q", "f64[M,8]"), builder.input("m", "f64[M,4]")
    value = ops.relu(ops.linear(m, builder.param("wv", "f64[8,4]")))
    graph = builder.finish(y=ops.attention(q, q, value, heads=1, scale=0.3))

    steps = [PASSES["fuse_linear_activation"], PASSES["absorb_value_projection"]]
    after = optimise(graph, steps)

    assert [node.op for node in after] == ["linear", "attention"]


def test_an_average_that_is_read_twice_is_projected_once() -> None:
    builder = Builder("read_twice")
    q, m = builder.input("q", "f64[M,8]"), builder.input("m", "f64[M,4]")
    value = ops.linear(m, builder.param("wv", "f64[8,4]"))
    y = ops.attention(q, q, value, heads=1, scale=0.3)
    graph = builder.finish(y=ops.linear(y, builder.param("wo", "f64[8,8]")), also=y)

    after = optimise(graph, [PASSES["absorb_value_projection"]])

    assert [node.op for node in after] == ["attention", "linear", "linear"]
    assert change(graph, after, weights_of(graph)) <= ALGEBRAIC_PASS

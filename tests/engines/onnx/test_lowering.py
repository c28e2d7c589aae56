"""The ONNX lowering: a rule for every op, and mistakes in rules that the table test sees."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from samgraph import ops
from samgraph.engines import find_engine
from samgraph.graph import Builder, Node, symbol
from samgraph.graph.types import Array
from samgraph.ops import OPS
from samgraph.runtime import CompileOptions, Session
from tests.ops.agreement import run_on
from tests.ops.test_planted_faults import seen, uses

pytest.importorskip("onnxruntime")
onnx = pytest.importorskip("samgraph.engines.onnx")
lowering = pytest.importorskip("samgraph.engines.onnx.lowering")
Rule = Callable[..., Any]
RULE = dict(onnx.LOWER)
ENGINE = "onnxruntime"


def _with(op: str, **changed: Any) -> Rule:
    """The real rule, with some attributes of the node replaced."""

    def rule(emitter: Any, node: Node, inputs: Sequence[str]) -> Any:
        attributes = {**node.attributes, **changed}
        return RULE[op](emitter, replace(node, attributes=attributes), inputs)

    return rule


def _as(op: str) -> Rule:
    return lambda emitter, node, inputs: RULE[op](emitter, node, inputs)


def _dropping(op: str, keep: int) -> Rule:
    """The real rule without the inputs behind the first `keep`: no bias, no mask."""
    return lambda emitter, node, inputs: RULE[op](emitter, node, inputs[:keep])


def _swapped(op: str) -> Rule:
    return lambda emitter, node, inputs: RULE[op](emitter, node, inputs[::-1])


FAULTS: dict[str, tuple[str, Rule]] = {
    "attention without its mask": ("attention", _dropping("attention", 3)),
    "attention with another scale": ("attention", _with("attention", scale=1.0)),
    "a convolution without its bias": ("conv2d", _dropping("conv2d", 2)),
    "a division the other way round": ("div", _swapped("div")),
    "an epsilon of another size": ("layer_norm", _with("layer_norm", eps=0.1)),
    "a linear layer without its activation": ("linear", _with("linear", activation="none")),
    "a maximum that is a minimum": ("maximum", _as("minimum")),
    "nearest pixels interpolated": ("resize", _with("resize", how="bilinear")),
    "a softmax over another axis": ("softmax", _with("softmax", axis=0)),
    "a choice the other way round": (
        "where",
        lambda emitter, node, inputs: RULE["where"](emitter, node, [inputs[0], *inputs[:0:-1]]),
    ),
}


def test_every_op_has_a_rule_or_a_decomposition() -> None:
    engine = find_engine(ENGINE)
    decomposed = {step.name.removeprefix("decompose_") for step in engine.passes if step.required}

    assert engine.ops == set(onnx.LOWER)
    assert set(OPS) - engine.ops <= decomposed


@pytest.mark.parametrize("fault", FAULTS)
def test_a_mistake_in_a_rule_is_seen(monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    op, rule = FAULTS[fault]
    cases = uses(op)
    expected = run_on("reference", cases)

    monkeypatch.setitem(onnx.LOWER, op, rule)

    assert seen(run_on(ENGINE, cases), expected)


def test_shapes_are_numbers_where_batches_are_not_empty() -> None:
    builder, N, F = Builder("movement"), symbol("N"), symbol("F")
    graph = builder.finish(y=builder.input("x", "f32[N,F,4,8]").reshape(N, 4 * F, 8))

    exported, exact = onnx.build(graph, {}, allows_empty=False), onnx.build(graph, {})

    assert [node.op_type for node in exported.graph.node] == ["Reshape"]
    assert np.frombuffer(exported.graph.initializer[0].raw_data, np.int64).tolist() == [0, -1, 8]
    assert "Shape" in [node.op_type for node in exact.graph.node]


def test_queries_in_pieces_give_the_same_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    builder, rng = Builder("pieces"), np.random.default_rng(6)
    q, k = builder.input("q", "f32[N,32,8]"), builder.input("k", "f32[N,4*F+2,8]")
    graph = builder.finish(
        one=ops.attention(q, k, k, heads=1, scale=0.5), two=ops.attention(q, k, k, heads=2, scale=1)
    )
    inputs = {"q": draw(rng, 2, 32, 8), "k": draw(rng, 2, 14, 8)}
    options = CompileOptions(engine=ENGINE, cache=False)
    expected = Session("cpu", options).compile(graph).run_numpy(inputs)

    monkeypatch.setattr(lowering, "MOST_SCORES", 200)
    model = onnx.build(graph, {})
    found = Session("cpu", options).compile(graph).run_numpy(inputs)

    assert [lowering.score_pieces(node) for node in graph] == [8, 16]
    assert [node.op_type for node in model.graph.node].count("Softmax") == 24
    for name, want in expected.items():
        assert np.allclose(found[name], want, rtol=1e-5, atol=1e-6)


def test_image_to_token_attention_stays_whole_and_memory_attention_does_not() -> None:
    builder = Builder("sizes")
    image, tokens = (
        builder.input("image", "f32[N,4096,64]"),
        builder.input("tokens", "f32[N,P+7,64]"),
    )
    memory = builder.input("memory", "f32[N,4096*F,64]")
    graph = builder.finish(
        a=ops.attention(image, tokens, tokens, heads=8, scale=1),
        b=ops.attention(image, memory, memory, heads=1, scale=1),
        c=ops.attention(tokens, image, image, heads=8, scale=1),
    )

    assert [lowering.score_pieces(node) for node in graph] == [1, 16, 1]


def draw(rng: np.random.Generator, *shape: int) -> Array:
    return rng.standard_normal(shape, np.float32)


def test_an_output_that_is_an_input_or_another_output_has_a_name_of_its_own() -> None:
    builder = Builder("same")
    x = builder.input("x", "f32[2]")
    y = x * 2.0
    model = onnx.build(builder.finish(x=x, a=y, b=y), {})

    assert [value.name for value in model.graph.output] == ["x:output", "a", "b"]

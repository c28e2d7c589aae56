"""The ONNX lowering: a rule for every op, and mistakes in rules that the table test sees."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from samgraph.engines import find_engine
from samgraph.graph import Builder, Node, symbol
from samgraph.ops import OPS
from tests.ops.agreement import run_on
from tests.ops.test_planted_faults import seen, uses

pytest.importorskip("onnxruntime")
onnx = pytest.importorskip("samgraph.engines.onnx")
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


def test_an_output_that_is_an_input_or_another_output_has_a_name_of_its_own() -> None:
    builder = Builder("same")
    x = builder.input("x", "f32[2]")
    y = x * 2.0
    model = onnx.build(builder.finish(x=x, a=y, b=y), {})

    assert [value.name for value in model.graph.output] == ["x:output", "a", "b"]

"""A mistake in a lowering rule or a decomposition: the comparison of the table test must see it."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from openvino import opset15

from samgraph.engines.openvino.lowering import LOWER
from samgraph.graph import Node
from samgraph.graph.types import Array
from samgraph.ops.resize import weights as resize_weights
from tests.ops.agreement import run_on
from tests.ops.faults import rows_first
from tests.ops.test_planted_faults import seen, uses

Rule = Callable[..., Any]
RULE = dict(LOWER)


def _mvn(eps_mode: str, variance: bool = True) -> Rule:
    def rule(_: Any, node: Node, inputs: Sequence[Any]) -> Any:
        x, scale, shift = inputs
        axes = opset15.constant(np.array([-1]))
        normal = opset15.mvn(x, axes, variance, node.attributes["eps"], eps_mode)
        return opset15.add(opset15.multiply(normal, scale), shift)

    return rule


def _with(op: str, **changed: Any) -> Rule:
    """The real rule, with some attributes of the node replaced."""

    def rule(symbols: Any, node: Node, inputs: Sequence[Any]) -> Any:
        attributes = {**node.attributes, **changed}
        return RULE[op](symbols, replace(node, attributes=attributes), inputs)

    return rule


def _swapped(op: str) -> Rule:
    return lambda symbols, node, inputs: RULE[op](symbols, node, inputs[::-1])


def _dropping(op: str, keep: int) -> Rule:
    """The real rule without the inputs behind the first `keep`: no bias, no mask."""

    def rule(symbols: Any, node: Node, inputs: Sequence[Any]) -> Any:
        return RULE[op](symbols, replace(node, inputs=node.inputs[:keep]), inputs[:keep])

    return rule


def _padded_before_only(symbols: Any, node: Node, inputs: Sequence[Any]) -> Any:
    padding: Any = node.attributes["padding"]
    before = np.array([0, 0, 2 * padding[0], 2 * padding[1]])
    padded = opset15.pad(
        inputs[0], opset15.constant(before), opset15.constant(before * 0), "constant",
        opset15.constant(np.float32(0)),
    )  # fmt: skip
    bare = replace(node, attributes={**node.attributes, "padding": (0, 0)})
    return RULE["conv2d"](symbols, bare, [padded, *inputs[1:]])


def _sums_for_means(symbols: Any, node: Node, inputs: Sequence[Any]) -> Any:
    how = "sum" if node.attributes["how"] == "mean" else node.attributes["how"]
    return _with("reduce", how=how)(symbols, node, inputs)


IN_LOWERING: dict[str, tuple[str, Rule]] = {
    "eps outside the root": ("layer_norm", _mvn("outside_sqrt")),
    "no variance": ("layer_norm", _mvn("inside_sqrt", variance=False)),
    "tanh gelu": ("gelu", lambda _, __, inputs: opset15.gelu(inputs[0], "tanh")),
    "unscaled attention": ("attention", _with("attention", scale=1.0)),
    "attention without mask": ("attention", _dropping("attention", 3)),
    "padding before only": ("conv2d", _padded_before_only),
    "convolution without bias": ("conv2d", _dropping("conv2d", 2)),
    "difference the other way": ("sub", _swapped("sub")),
    "quotient the other way": ("div", _swapped("div")),
    "softmax along the first axis": ("softmax", _with("softmax", axis=0)),
    "maximum for minimum": ("minimum", RULE["maximum"]),
    "cosine for sine": ("sin", RULE["cos"]),
    "less or equal for less": ("compare", _with("compare", how="le")),
    "clipped below only": ("clip", _with("clip", high=1e30)),
    "sums for means": ("reduce", _sums_for_means),
}


@pytest.mark.parametrize("name", sorted(IN_LOWERING))
def test_a_fault_in_a_lowering_rule_is_seen(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    op, fault = IN_LOWERING[name]
    expected = run_on("reference", uses(op))
    monkeypatch.setitem(LOWER, op, fault)

    assert seen(run_on("openvino", uses(op)), expected) > 0


def _shifted_weights(length: int, size: int, how: str, antialias: bool) -> Array:
    return np.roll(resize_weights(length, size, how, antialias), 1, axis=1)


@pytest.mark.parametrize(
    ("op", "name", "fault"),
    [
        ("axial_rope", "passes.decompose_axial_rope.rotation_tables", rows_first),
        ("resize", "engines.openvino.passes.resize_to_matmul.resize_weights", _shifted_weights),
    ],
)
def test_a_fault_in_a_decomposition_is_seen(
    op: str, name: str, fault: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = run_on("reference", uses(op))
    monkeypatch.setattr(f"samgraph.{name}", fault)

    assert seen(run_on("openvino", uses(op), "fused"), expected) > 0

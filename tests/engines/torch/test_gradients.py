"""Gradients of every op, with respect to inputs and params, against finite differences.

The differences are those of the numpy reference in float64, not of torch: a gradient is right when
it is the slope of the op's definition. A slope is taken along random directions, all elements
moving at once, so that no element can be wrong unseen.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, settings

from samgraph import ops
from samgraph.graph import Builder, Graph
from samgraph.graph.evaluation import evaluate_graph
from samgraph.graph.types import Array
from samgraph.ops import OPS
from tests.engines.torch_devices import devices
from tests.graph.random_graphs import arrays_for, graphs
from tests.ops.agreement import join
from tests.ops.cases import Case, batches

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.parity

# Their results are whole numbers, or nothing is put in; `cast` has a test of its own below.
WITHOUT = {"compare", "constant", "cast"}
Rule = Callable[..., Any]
STEP = 1e-6
# Of the size of the slope: the step squared, and 1e-16 / step of rounding, times some hundreds.
SLOPE = 1e-6
BATCH, DIRECTIONS = 20, 3


def gradients(case: Case, weight: Array, device: str) -> list[Array | None]:
    """Of ``sum(weight * result)``, for each array that is floating point."""
    from samgraph.engines.torch import evaluate

    graph, inputs, params = join([case])
    values = {
        name: torch.tensor(array, device=device, requires_grad=array.dtype.kind == "f")
        for name, array in {**inputs, **params}.items()
    }
    result = evaluate(graph, values)["case0"]
    (result * torch.tensor(weight, device=device)).sum().backward()
    named = [values[f"case0.{index}"] for index in range(len(case.arrays))]
    return [x.grad.cpu().numpy() if x.requires_grad else None for x in named]


def slope(case: Case, weight: Array, direction: list[Array | None]) -> float:
    """How fast ``sum(weight * result)`` of the reference changes along a direction."""
    ends = []
    for step in (STEP, -STEP):
        moved = [
            x if d is None else x + step * d for x, d in zip(case.arrays, direction, strict=True)
        ]
        ends.append(float((OPS[case.op].reference(*moved, **case.attributes) * weight).sum()))
    return (ends[0] - ends[1]) / (2 * STEP)


def wrong_slopes(op: str, device: str = "cpu") -> list[str]:
    """The uses of an op, of some random cases, whose gradient is not the slope."""
    found: list[str] = []

    @settings(max_examples=1, phases=[Phase.generate])
    @given(batches(op, ("f64",), BATCH))
    def check(drawn: list[Case]) -> None:
        rng = np.random.default_rng(0)
        tried = [case for case in drawn if case.attributes.get("how") != "argmax"]
        found.extend(str(case) for case in tried if not has_right_slopes(case, device, rng))
        assert len(tried) > BATCH // 3

    check()
    return found


def has_right_slopes(case: Case, device: str, rng: np.random.Generator) -> bool:
    if case.op == "sqrt":  # at zero its slope is infinite
        case = replace(case, arrays=tuple(x + 0.1 for x in case.arrays))
    shape = OPS[case.op].reference(*case.arrays, **case.attributes).shape
    weight = rng.standard_normal(shape)
    found = gradients(case, weight, device)
    for _ in range(DIRECTIONS):
        direction = [None if g is None else rng.standard_normal(g.shape) for g in found]
        along = [
            float((g * d).sum())
            for g, d in zip(found, direction, strict=True)
            if g is not None and d is not None
        ]
        error = abs(sum(along) - slope(case, weight, direction))
        if not error <= SLOPE * (1 + sum(map(abs, along))):
            return False
    return True


@pytest.mark.parametrize("device", devices())
@pytest.mark.parametrize("op", sorted(set(OPS) - WITHOUT))
def test_gradients_are_the_slopes_of_the_reference(op: str, device: str) -> None:
    assert not wrong_slopes(op, device)


def _with_detached(index: int) -> Callable[[Rule], Rule]:
    """A rule whose gradient does not reach one of its inputs."""

    def plant(rule: Rule) -> Rule:
        def faulty(*tensors: Any, **attributes: Any) -> Any:
            hidden = [x.detach() if i == index else x for i, x in enumerate(tensors)]
            forgotten = sum(x.sum() * 0 for x in tensors if x.is_floating_point())
            return rule(*hidden, **attributes) + forgotten

        return faulty

    return plant


def _scaled(rule: Rule) -> Rule:
    """A rule whose result is right and whose gradient is a thousandth too large."""

    def faulty(*tensors: Any, **attributes: Any) -> Any:
        y = rule(*tensors, **attributes)
        return y * 1.001 - (y * 0.001).detach()

    return faulty


@pytest.mark.parametrize("op", ["relu", "layer_norm", "attention", "resize", "gather", "conv2d"])
@pytest.mark.parametrize("fault", ["scaled", "input", "weight"])
def test_a_fault_in_a_gradient_is_seen(
    op: str, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from samgraph.engines.torch.rules import RULES

    if fault == "weight" and op not in ("layer_norm", "attention", "conv2d"):
        pytest.skip("it has no weight")
    plant = {"scaled": _scaled, "input": _with_detached(0), "weight": _with_detached(1)}[fault]
    monkeypatch.setitem(RULES, op, plant(RULES[op]))

    assert wrong_slopes(op)


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
def test_a_cast_hands_the_gradient_through(dtype: str) -> None:
    from samgraph.engines.torch import evaluate

    builder = Builder()
    x = builder.input("x", "f64[3]")
    graph = builder.finish(y=ops.cast(x, dtype))  # type: ignore[arg-type]  # one of ours
    tensor = torch.tensor([1.0, -2.0, 3.0], dtype=torch.float64, requires_grad=True)

    evaluate(graph, {"x": tensor})["y"].double().sum().backward()

    assert tensor.grad.tolist() == [1, 1, 1]


@settings(max_examples=25, phases=[Phase.generate])
@given(graphs(dtype="f64", steps=6, least=2))
def test_gradients_of_random_graphs_are_the_slopes_of_the_reference(graph: Graph) -> None:
    from samgraph.engines.torch import evaluate

    sizes = {"B": 2, "M": 3}
    rng = np.random.default_rng(0)
    inputs, params = arrays_for(graph, sizes)
    arrays = {**inputs, **params}
    values = {name: torch.tensor(x, requires_grad=True) for name, x in arrays.items()}
    direction = {name: rng.standard_normal(x.shape) for name, x in arrays.items()}

    output = evaluate(graph, values)["y"]
    weight = rng.standard_normal(tuple(output.shape))
    if output.requires_grad:
        (output * torch.tensor(weight)).sum().backward()
    along = [
        float((x.grad * torch.tensor(direction[name])).sum())
        for name, x in values.items()
        if x.grad is not None
    ]
    ends = []
    for step in (STEP, -STEP):
        moved = {name: x + step * direction[name] for name, x in arrays.items()}
        ends.append(float((evaluate_graph(graph, moved, sizes)["y"] * weight).sum()))

    expected = (ends[0] - ends[1]) / (2 * STEP)
    assert abs(sum(along) - expected) <= 10 * SLOPE * (1 + sum(map(abs, along))), str(graph)

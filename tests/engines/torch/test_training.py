"""Evaluating graphs with tensors: gradients flow, memory can be saved, mistakes are named."""

from typing import Any

import numpy as np
import pytest

from samgraph import ops
from samgraph.errors import InputError
from samgraph.graph import Builder, Graph
from samgraph.graph.types import Array
from samgraph.models.sam2 import graphs
from tests.engines.torch_devices import devices
from tests.golden.configs import CONFIGS
from tests.graph.random_graphs import arrays_for
from tests.models.sam2.bench import config_from

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.parity


def network(depth: int = 1) -> Graph:
    """Residual blocks of a norm and two linear maps, on [B, 8]."""
    builder = Builder("network")
    x = builder.input("x", "f32[B,8]")
    for i in range(depth):
        at = builder.scope() / i
        normal = ops.layer_norm(x, at.weight("scale", 8), at.weight("shift", 8), eps=1e-6)
        inner = ops.gelu(ops.linear(normal, at.weight("up", 32, 8)))
        x = x + ops.linear(inner, at.weight("down", 8, 32), at.weight("bias", 8))
    return builder.finish(y=x)


def tensors(arrays: dict[str, Array], device: str = "cpu", **options: Any) -> dict[str, Any]:
    return {name: torch.tensor(x, device=device, **options) for name, x in arrays.items()}


@pytest.mark.parametrize("device", devices())
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_training_lowers_a_loss(precision: Any, device: str) -> None:
    from samgraph.engines.torch import Evaluator

    graph = network()
    inputs, weights = arrays_for(graph, {"B": 32})
    params, x = tensors(weights, device, requires_grad=True), tensors(inputs, device)["x"]
    wanted = torch.sin(2 * x)
    run = Evaluator(graph, precision)
    descent = torch.optim.SGD(params.values(), lr=0.05)

    losses = []
    for _ in range(60):
        loss = (run({**params, "x": x})["y"] - wanted).square().mean()
        descent.zero_grad()
        loss.backward()
        descent.step()
        losses.append(float(loss.detach()))

    assert losses[-1] < 0.5 * losses[0]


def test_what_was_trained_is_what_is_served() -> None:
    from samgraph.engines.torch import evaluate
    from samgraph.runtime import CompileOptions, Session

    graph = network()
    inputs, weights = arrays_for(graph, {"B": 4})
    params = tensors(weights, requires_grad=True)
    evaluate(graph, {**params, **tensors(inputs)})["y"].square().sum().backward()
    with torch.no_grad():
        for x in params.values():
            x -= 1e-3 * x.grad

    expected = evaluate(graph, {**params, **tensors(inputs)})["y"].detach().numpy()
    trained = {name: x.detach().numpy() for name, x in params.items()}
    served = (
        Session("cpu", CompileOptions(cache=False)).compile(graph, trained).run_numpy(inputs)["y"]
    )

    np.testing.assert_allclose(served, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("device", devices())
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_gradients_with_checkpoints_are_the_same(precision: Any, device: str) -> None:
    from samgraph.engines.torch import evaluate

    graph = network(depth=6)
    inputs, weights = arrays_for(graph, {"B": 5})
    found = []
    for checkpoint in (False, True):
        values = tensors({**inputs, **weights}, device, requires_grad=True)
        y = evaluate(graph, values, precision=precision, checkpoint=checkpoint)["y"]
        y.square().sum().backward()
        found.append([y, *(x.grad for x in values.values())])

    for plain, again in zip(*found, strict=True):
        assert torch.equal(plain, again)


def test_checkpoints_compute_the_nodes_again_and_keep_little(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from samgraph.engines.torch import evaluate
    from samgraph.engines.torch.rules import RULES

    graph = network(depth=6)
    inputs, weights = arrays_for(graph, {"B": 5})
    gelu, count = RULES["gelu"], [0]

    def counted(x: Any) -> Any:
        count[0] += 1
        return gelu(x)

    monkeypatch.setitem(RULES, "gelu", counted)
    values = tensors({**inputs, **weights}, requires_grad=True)
    y = evaluate(graph, values, checkpoint=True)["y"]
    assert count == [6]
    y.sum().backward()
    assert count == [12]
    with torch.no_grad():
        evaluate(graph, values, checkpoint=True)
    assert count == [18]


def test_pieces_are_the_whole_and_are_cut_where_little_is_alive() -> None:
    from samgraph.engines.torch.pieces import cut
    from samgraph.engines.torch.plan import plan
    from samgraph.graph.dims import evaluate, product

    graph = graphs.image_encoder(config_from(CONFIGS["test"], "test"))
    steps = plan(graph, "fp32")
    bindings = {"B": 1}
    outputs = {value.name for _, value in graph.outputs}

    pieces = cut(steps, outputs, bindings)

    assert [step for piece in pieces for step in piece.steps] == list(steps)
    sizes = {
        s.node.result.name: evaluate(product(s.node.result.type.shape), bindings) for s in steps
    }
    kept = sum(sizes[name] for piece in pieces for name in piece.gives)
    assert 10 < len(pieces) < 60
    assert kept < 0.2 * sum(sizes.values())


def test_a_graph_of_nothing_and_one_node_can_be_cut() -> None:
    from samgraph.engines.torch import evaluate

    builder = Builder("small")
    x = builder.input("x", "f32[2]")
    for graph in (builder.finish(y=x), builder.finish(y=ops.relu(x))):
        tensor = torch.ones(2, requires_grad=True)
        evaluate(graph, {"x": tensor}, checkpoint=True)["y"].sum().backward()

        assert tensor.grad.tolist() == [1, 1]


def test_a_run_without_gradients_does_not_spoil_one_with_them() -> None:
    """Tables and constants are kept: they must not be tensors that gradients refuse."""
    from samgraph.engines.torch import Evaluator

    builder = Builder("kept")
    image = builder.input("image", "f32[1,4,6,6]")
    small = ops.resize(image, (5, 3), how="bilinear", antialias=True)
    rotated = ops.axial_rope(image.reshape(1, 36, 4), grid=(6, 6), theta=77.0)
    graph = builder.finish(y=small * np.full((1, 4, 1, 1), 2, np.float32), z=rotated)
    run = Evaluator(graph)
    tensor = torch.ones(1, 4, 6, 6)
    with torch.inference_mode():
        run({"image": tensor})

    tensor.requires_grad_(True)
    found = run({"image": tensor})
    (found["y"].square().sum() + found["z"].square().sum()).backward()

    assert tensor.grad.abs().max() > 0


def linear() -> Graph:
    builder = Builder("map")
    x, w = builder.input("x", "f32[B,4]"), builder.param("w", "f32[3,4]")
    side = builder.input("side", "i64[B]")
    return builder.finish(y=ops.linear(x, w), side=side)


def fitting() -> dict[str, Any]:
    return {
        "x": torch.ones(2, 4), "w": torch.ones(3, 4), "side": torch.zeros(2, dtype=torch.int64),
    }  # fmt: skip


def test_more_tensors_than_the_graph_reads_are_fine() -> None:
    from samgraph.engines.torch import evaluate

    assert evaluate(linear(), {**fitting(), "other": torch.ones(9)})["y"].shape == (2, 3)


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("w", lambda _: None, "`w` is not a torch tensor\n  got:      NoneType"),
        ("x", lambda x: x.double(), "tensor `x` has the wrong dtype\n  got:      torch.float64 [2"),
        ("side", lambda x: x.int(), "tensor `side` has the wrong dtype\n  got:      torch.int32"),
        ("w", lambda w: w[:2], "tensor `w` has the wrong shape\n  got:      torch.float32 [2, 4]"),
        ("x", lambda x: x[:1], "input `side` has the wrong shape"),
        ("x", lambda x: x[:, :3], "input `x` has the wrong shape"),
        (
            "w",
            lambda w: w.to("meta"),
            "the tensors are on different devices\n  got:      cpu, m",
        ),
    ],
)
def test_a_tensor_that_does_not_fit_is_named(name: str, change: Any, message: str) -> None:
    from samgraph.engines.torch import evaluate

    values = fitting()
    values[name] = change(values[name])

    with pytest.raises(InputError) as caught:
        evaluate(linear(), values)

    assert str(caught.value).startswith(message)


def test_a_missing_tensor_is_named() -> None:
    from samgraph.engines.torch import evaluate

    with pytest.raises(InputError) as caught:
        evaluate(linear(), {"x": torch.ones(2, 4)})

    assert str(caught.value) == (
        "graph `map` needs 2 tensors that were not given\n  got:      side, w"
    )


def test_lengths_that_no_op_takes_are_refused() -> None:
    from samgraph.engines.torch import evaluate

    builder = Builder("short")
    x = builder.input("x", "f32[M]")
    graph = builder.finish(y=x[2:])

    with pytest.raises(InputError, match="graph `short` cannot run with M=1"):
        evaluate(graph, {"x": torch.ones(1)})

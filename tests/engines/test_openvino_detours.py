"""What the OpenVINO engine does its own way for speed must give the reference's numbers."""

import numpy as np
import pytest

from samgraph import ops
from samgraph.engines.openvino.narrow_norms import widen_norms
from samgraph.graph import Array, Builder, Graph, TensorType
from samgraph.runtime import CompileOptions, Session
from tests.ops.agreement import disagreement


def run(graph: Graph, engine: str, **arrays: Array) -> Array:
    weights = {value.name: arrays.pop(value.name) for value in graph.params}
    options = CompileOptions(engine=engine, threads=1, cache=False)
    return Session("cpu", options).compile(graph, weights).run(arrays)["y"]


def check(graph: Graph, **arrays: Array) -> None:
    expected, actual = (run(graph, engine, **arrays) for engine in ("reference", "openvino"))

    assert disagreement(actual, expected) is None


def random(*shape: int) -> Array:
    return np.random.default_rng(0).standard_normal(shape, np.float32)


def norm(*shape: int | str) -> Graph:
    builder = Builder("norm")
    x = builder.input("x", f"f32[{','.join(map(str, shape))}]")
    scale, shift = (builder.param(name, f"f32[{shape[-1]}]") for name in ("scale", "shift"))
    return builder.finish(y=ops.layer_norm(x, scale, shift, eps=1e-6))


@pytest.mark.parametrize(("channels", "offset"), [(1, 0), (2, 0), (4, 0), (8, 0), (4, 3), (8, 3)])
def test_a_norm_over_few_channels_is_made_of_products(channels: int, offset: int) -> None:
    graph = norm("N", 3, 64, channels)

    assert [node.op for node in widen_norms(graph)].count("linear") == 2
    x = random(2, 3, 64, channels) * np.array([1, 9], np.float32).reshape(2, 1, 1, 1) + offset
    check(graph, x=x.astype(np.float32), scale=random(channels), shift=random(channels))


@pytest.mark.parametrize("shape", [(2, 64, 16), (2, 64, 3), (2, 15, 4), ("N", "M", 4), (4,)])
def test_other_norms_stay(shape: tuple[int | str, ...]) -> None:
    graph = norm(*shape)

    assert widen_norms(graph) is graph


@pytest.mark.parametrize("width", [1, 2, 3, 7])
@pytest.mark.parametrize("times", [1, 2, 3, 4])
def test_an_image_becomes_a_whole_number_of_times_as_wide(width: int, times: int) -> None:
    builder = Builder("wider")
    x = builder.input("x", TensorType((2, 3, 5, width)))
    graph = builder.finish(y=ops.resize(x, (10, times * width), how="bilinear"))

    check(graph, x=random(2, 3, 5, width))


def test_a_product_keeps_numbers_that_are_not_finite() -> None:
    builder = Builder("product")
    x, w = builder.input("x", "f32[M,1]"), builder.param("w", "f32[1,1]")
    graph = builder.finish(y=ops.linear(x, w))
    numbers = np.array([np.inf, -np.inf, np.nan, 0, 3e38, -3e38, 1e-30, -1e-30], np.float32)[
        :, None
    ]

    y = run(graph, "openvino", x=numbers, w=np.ones((1, 1), np.float32))

    np.testing.assert_array_equal(y, numbers)

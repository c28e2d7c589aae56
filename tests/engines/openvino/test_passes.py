"""Passes of the OpenVINO engine: what they rewrite and leave, and that the numbers are right."""

import numpy as np
import pytest

from samgraph import ops
from samgraph.engines.openvino.passes.absorb_norm_weights import absorb_norm_weights
from samgraph.engines.openvino.passes.convolve_narrow_norms import convolve_narrow_norms
from samgraph.engines.openvino.passes.linear_to_pointwise import linear_to_pointwise
from samgraph.engines.openvino.passes.maps_to_tokens import maps_to_tokens
from samgraph.graph import Array, Builder, Graph, TensorType
from samgraph.graph.evaluation import evaluate_graph
from samgraph.passes import optimise
from samgraph.passes.decompose_layer_norm_2d import decompose_layer_norm_2d
from samgraph.passes.fuse_linear_activation import fuse_linear_activation
from samgraph.passes.simplify_movement import simplify_movement
from samgraph.runtime import CompileOptions, Session
from tests.ops.agreement import disagreement


def run(graph: Graph, engine: str, **arrays: Array) -> Array:
    weights = {value.name: arrays.pop(value.name) for value in graph.params}
    options = CompileOptions(engine=engine, threads=1, cache=False)
    return Session("cpu", options).compile(graph, weights).run_numpy(arrays)["y"]


def check(graph: Graph, **arrays: Array) -> None:
    expected, actual = (run(graph, engine, **arrays) for engine in ("reference", "openvino"))

    assert disagreement(actual, expected) is None


def random(*shape: int) -> Array:
    return np.random.default_rng(0).standard_normal(shape, np.float32)


def norm(channels: int, pixels: int = 1, groups: int = 1, *, moved: bool = True) -> Graph:
    """A layer norm of what a convolution makes; `pixels` of them stand beside each other."""
    builder = Builder("norm")
    x, together = builder.input("x", "f32[N,4,6,5]"), channels * pixels
    weight = builder.param("weight", TensorType((together, 4 // groups, 3, 3)))
    bias, scale, shift = (
        builder.param(name, TensorType((n,)))
        for name, n in (("bias", together), ("scale", channels), ("shift", channels))
    )
    y = ops.conv2d(x, weight, bias, stride=(2, 2), padding=(1, 1), groups=groups)
    y = ops.transpose(y, 0, 2, 3, 1) if moved else y.reshape(-1, 3, 3, channels)
    y = y.reshape(-1, 3, 3, pixels, channels) if pixels > 1 else y
    return builder.finish(y=ops.layer_norm(y, scale, shift, eps=1e-3))


def count(graph: Graph, op: str) -> int:
    return [node.op for node in graph].count(op)


@pytest.mark.parametrize("offset", [0, 3])
@pytest.mark.parametrize(("channels", "pixels"), [(1, 1), (3, 1), (4, 1), (4, 4), (2, 3), (16, 1)])
def test_a_norm_over_few_channels_of_a_convolution_becomes_another(
    channels: int, pixels: int, offset: float
) -> None:
    graph, together = norm(channels, pixels), channels * pixels
    bias = np.arange(together, dtype=np.float32) + offset

    centred = convolve_narrow_norms(graph)

    assert count(centred, "layer_norm") == 0
    assert count(centred, "conv2d") == 2
    weights = {"weight": random(together, 4, 3, 3), "bias": bias}
    weights |= {"scale": random(channels), "shift": random(channels)}
    check(graph, x=random(2, 4, 6, 5), **weights)


def test_a_norm_of_an_image_does_too_and_nothing_is_moved() -> None:
    builder = Builder("image")
    x, weight = builder.input("x", "f32[2,3,4,4]"), builder.param("weight", "f32[4,3,1,1]")
    scale, shift = (builder.param(name, "f32[4]") for name in ("scale", "shift"))
    y = ops.gelu(ops.layer_norm_2d(ops.conv2d(x, weight), scale, shift, eps=1e-6))
    graph = builder.finish(y=y)

    passes = [decompose_layer_norm_2d, convolve_narrow_norms, simplify_movement]
    centred = optimise(graph, passes)

    assert (count(centred, "layer_norm"), count(centred, "transpose")) == (0, 0)
    arrays = {"weight": random(4, 3, 1, 1), "scale": random(4), "shift": random(4)}
    check(graph, x=random(2, 3, 4, 4), **arrays)


def test_a_mean_far_above_the_deviation_costs_no_digits() -> None:
    graph, weight = norm(4), random(4, 4, 3, 3)
    arrays = {"x": random(2, 4, 6, 5) + 100, "weight": weight / 100 + 1, "bias": random(4)}
    arrays |= {"scale": np.ones(4, np.float32), "shift": np.zeros(4, np.float32)}
    wide = {name: array.astype(np.float64) for name, array in arrays.items()}
    truth = evaluate_graph(graph, wide, {"N": 2})["y"]

    error = {e: np.abs(run(graph, e, **arrays) - truth).max() for e in ("reference", "openvino")}

    assert error["openvino"] <= error["reference"]


@pytest.mark.parametrize(
    "graph",
    [norm(17), norm(9, 2), norm(8, groups=2), norm(4, moved=False)],
    ids=["many channels", "many pixels", "groups", "not moved"],
)
def test_other_norms_stay(graph: Graph) -> None:
    assert convolve_narrow_norms(graph) is graph


@pytest.mark.parametrize("kind", ["an input", "read twice", "other pixels"])
def test_norms_of_what_is_not_only_theirs_stay(kind: str) -> None:
    builder = Builder("norm")
    x = builder.input("x", "f32[1,4,6,6]")
    scale, shift = (builder.param(name, "f32[4]") for name in ("scale", "shift"))
    y = x if kind == "an input" else ops.conv2d(x, builder.param("weight", "f32[4,4,1,1]"))
    last = ops.transpose(y, 0, 2, 3, 1)
    last = last.reshape(1, 36, 4) if kind == "other pixels" else last
    outputs = {"y": ops.layer_norm(last, scale, shift, eps=1e-6)}
    graph = builder.finish(outputs | {"z": y} if kind == "read twice" else outputs)

    assert convolve_narrow_norms(graph) is graph


def normed(kind: str) -> Graph:
    """Two linear maps of a layer norm, one of them of what is moved; and what `kind` says."""
    builder = Builder("normed")
    x = builder.input("x", "f32[N,4,8,8]")
    scale, shift = (builder.param(name, "f32[8]") for name in ("scale", "shift"))
    weight, bias = builder.param("weight", "f32[5,8]"), builder.param("bias", "f32[5]")
    y = ops.layer_norm(x, scale, shift, eps=1e-6)
    moved = {
        "padded": ops.pad(y, (0, 0, 0, 0), (0, 1, 0, 0)),
        "transposed": ops.transpose(y, 0, 1, 3, 2),
        "cut": y.reshape(-1, 4, 8, 2, 4).reshape(-1, 8),
    }.get(kind, y.reshape(-1, 2, 2, 8, 8).transpose(0, 2, 1, 3, 4))
    first, second = ops.linear(y, weight, bias), ops.gelu(ops.linear(moved, weight))
    also = {"z": y} if kind == "an output" else {"z": y + 1.0} if kind == "added to" else {}
    return fuse_linear_activation(builder.finish({"y": first, "second": second, **also}))


def test_linear_maps_take_up_the_weights_of_a_norm() -> None:
    graph = normed("plain")
    arrays = {name: random(*shape) for name, shape in (("scale", (8,)), ("weight", (5, 8)))}
    arrays |= {"x": random(2, 4, 8, 8), "shift": random(8) + 1, "bias": random(5)}
    sizes = {"N": 2}

    plain = absorb_norm_weights(graph)

    (norm,) = (node for node in plain if node.op == "layer_norm")
    assert not {value.name for value in norm.inputs} & {"scale", "shift"}
    expected, actual = (evaluate_graph(each, arrays, sizes) for each in (graph, plain))
    assert disagreement(actual["y"], expected["y"]) is None
    assert disagreement(actual["second"], expected["second"]) is None
    check(graph, **arrays)


@pytest.mark.parametrize("kind", ["padded", "transposed", "cut", "an output", "added to"])
def test_norms_that_something_else_reads_keep_their_weights(kind: str) -> None:
    graph = normed(kind)

    assert absorb_norm_weights(graph) is graph


def linear(shape: str, *, gelu: bool = False, moved: bool = False) -> Graph:
    builder = Builder("linear")
    weight, bias = builder.param("weight", "f32[5,6]"), builder.param("bias", "f32[5]")
    y = ops.linear(builder.input("x", f"f32[{shape},6]"), weight, bias)
    y = ops.transpose(y, 0, 3, 1, 2) if moved else y
    return fuse_linear_activation(builder.finish(y=ops.gelu(y) if gelu else y))


@pytest.mark.parametrize("shape", ["257", "3,86", "1,331", "2,8,16", "2,2,8,8"])
def test_a_linear_map_of_many_places_becomes_a_convolution(shape: str) -> None:
    graph = linear(shape)

    after = linear_to_pointwise(graph)

    assert (count(after, "linear"), count(after, "conv2d")) == (0, 1)
    arrays = {"weight": random(5, 6), "bias": random(5)}
    check(graph, x=random(*map(int, shape.split(",")), 6), **arrays)


def test_added_to_an_image_it_is_not_moved() -> None:
    builder = Builder("residual")
    hidden, weight = builder.input("hidden", "f32[2,16,8,6]"), builder.param("weight", "f32[5,6]")
    moved = ops.transpose(ops.linear(hidden, weight), 0, 3, 1, 2)
    graph = builder.finish(y=builder.input("x", moved.type) + moved)

    joined = optimise(graph, [linear_to_pointwise, simplify_movement])

    assert [node.op for node in joined] == ["transpose", "reshape", "conv2d", "add"]
    check(graph, hidden=random(2, 16, 8, 6), x=random(2, 5, 16, 8), weight=random(5, 6))


@pytest.mark.parametrize(
    "graph",
    [linear("255"), linear("N,256"), linear("256", gelu=True), linear("1,16,16", moved=True)],
    ids=["few positions", "any number", "activated", "an output channels-first"],
)
def test_other_linear_maps_stay(graph: Graph) -> None:
    assert count(graph, "linear") == 1
    assert linear_to_pointwise(graph) is graph


def test_maps_with_their_channels_last_become_tokens() -> None:
    builder = Builder("block")
    x, embedding = builder.input("x", "f32[2,3,5,8]"), builder.param("embedding", "f32[1,3,5,8]")
    scale, shift = (builder.param(name, "f32[8]") for name in ("scale", "shift"))
    x = x + embedding
    normal = ops.layer_norm(x, scale, shift, eps=1e-6)
    graph = builder.finish(y=x + ops.linear(normal, builder.param("weight", "f32[8,8]")))

    tokens = optimise(graph, [maps_to_tokens, simplify_movement])

    assert [node.op for node in tokens if node.op != "reshape"] == [node.op for node in graph]
    assert {node.result.type.rank for node in tokens if node.op != "reshape"} == {3}
    assert count(tokens, "reshape") == 3  # of the input, the param and the output
    arrays = {"embedding": random(1, 3, 5, 8), "scale": random(8), "shift": random(8)}
    check(graph, x=random(2, 3, 5, 8), weight=random(8, 8), **arrays)


@pytest.mark.parametrize("kind", ["no norm is near", "any number", "three axes"])
def test_other_maps_stay(kind: str) -> None:
    builder = Builder("sum")
    shapes = {"any number": "f32[N,3,5,8]", "three axes": "f32[2,15,8]"}
    x = builder.input("x", shapes.get(kind, "f32[2,3,5,8]"))
    y = x + x
    far = {} if kind == "no norm is near" else {"z": ops.linear(y, builder.param("w", "f32[8,8]"))}
    graph = builder.finish({"y": y, **far})

    assert maps_to_tokens(graph) is graph


def test_a_sum_with_a_row_of_a_map_stays() -> None:
    builder = Builder("row")
    total = builder.input("x", "f32[2,3,5,8]") + builder.param("row", "f32[5,8]")
    graph = builder.finish(y=ops.linear(total, builder.param("weight", "f32[8,8]")))

    ranks = {node.op: node.result.type.rank for node in maps_to_tokens(graph)}

    assert (ranks["add"], ranks["linear"]) == (4, 3)
    check(graph, x=random(2, 3, 5, 8), row=random(5, 8), weight=random(8, 8))


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

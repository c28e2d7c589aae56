"""Feature maps enter and leave channels-last in memory, and mean the same."""

from collections.abc import Callable
from contextlib import nullcontext

import numpy as np
import pytest

from samgraph import ops
from samgraph.engines import EngineOptions, find_engine
from samgraph.engines.openvino.interface import Stripped, strip_transposes
from samgraph.engines.openvino.passes.expose_channels_last import expose_channels_last
from samgraph.graph import Array, Builder, Graph, Tensor
from samgraph.runtime import CompileOptions, Session
from tests.ops.agreement import disagreement

Body = Callable[[Tensor, Tensor], dict[str, Tensor]]


def graph_of(body: Body, shape: str = "N,8,4,6") -> Graph:
    builder = Builder("maps")
    x, weight = builder.input("x", f"f32[{shape}]"), builder.param("weight", "f32[8,8,1,1]")
    return builder.finish(body(x, weight))


def random(*shape: int) -> Array:
    return np.random.default_rng(0).standard_normal(shape, np.float32)


def channels_last(array: Array) -> Array:
    """The same array, in other memory."""
    return np.asarray(array.transpose(0, 2, 3, 1), order="C").transpose(0, 3, 1, 2)


def has_channels_last(array: Array) -> bool:
    return bool(array.transpose(0, 2, 3, 1).flags.c_contiguous)


def through_tokens(x: Tensor, weight: Tensor) -> dict[str, Tensor]:
    tokens = x.transpose(0, 2, 3, 1).reshape(-1, 24, 8)
    return {"y": (tokens * 2.0).reshape(-1, 4, 6, 8).transpose(0, 3, 1, 2)}


def in_and_out(x: Tensor, weight: Tensor) -> dict[str, Tensor]:
    y = ops.conv2d(x, weight)
    return {"y": y, "again": y, "sum": ops.reduce(y, (1,), how="sum"), "z": ops.conv2d(y, weight)}


MOVED: dict[str, Body] = {
    "by a convolution": lambda x, weight: {"y": ops.conv2d(x, weight)},
    "by tokens": through_tokens,
    "by both": lambda x, weight: {**through_tokens(x, weight), "z": ops.conv2d(x, weight)},
    "and read on": in_and_out,
    "added up": lambda x, weight: {"y": ops.relu(ops.conv2d(x, weight)) + ops.conv2d(x, weight)},
}


@pytest.mark.parametrize("shape", ["N,8,4,6", "1,8,4,6", "2,8,4,6"])
@pytest.mark.parametrize("name", MOVED)
def test_a_map_is_read_and_left_channels_last(name: str, shape: str) -> None:
    graph, weights = graph_of(MOVED[name], shape), {"weight": random(8, 8, 1, 1)}
    x = random(1 if shape[0] == "1" else 2, 8, 4, 6)
    reference, openvino = (
        Session("cpu", CompileOptions(engine=engine, threads=1, cache=False)).compile(
            graph, weights
        )
        for engine in ("reference", "openvino")
    )

    stripped = strip_transposes(expose_channels_last(graph))

    assert stripped.inputs == ("x",)
    assert set(stripped.outputs) == {name for name, _ in graph.outputs} - {"sum"}
    expected = reference.run(x=x)
    for given in (x, channels_last(x), x[:, ::-1][:, ::-1], np.broadcast_to(x[:1], x.shape)):
        found = openvino.run(x=given)
        wanted = expected if np.array_equal(given, x) else reference.run(x=given)
        assert all(disagreement(found[key], wanted[key]) is None for key in wanted)
        assert all(has_channels_last(found[key]) for key in stripped.outputs)
        assert not any(np.shares_memory(array, given) for array in found.values())


STAYING: dict[str, tuple[Body, str]] = {
    "a sum reads it too": (
        lambda x, weight: {"y": ops.reduce(ops.conv2d(x, weight), (1,), how="sum"), "z": x + 1.0},
        "N,8,4,6",
    ),
    "a convolution by it": (
        lambda x, weight: {"y": ops.reduce(ops.conv2d(x, x), (1,), how="sum")},
        "8,8,1,1",
    ),
    "memories, that are no map": (
        lambda x, weight: {"y": ops.matmul(x.reshape(-1, 32, 6), random(6, 3))},
        "N,8,4,6",
    ),
    "another transposition": (
        lambda x, weight: {"y": (x.transpose(0, 2, 1, 3) * 2.0).transpose(0, 2, 1, 3)},
        "N,8,4,6",
    ),
    "a picture": (
        lambda x, weight: {"y": ops.reduce(ops.conv2d(x, weight[:, :3]), (1,), how="sum")},
        "N,3,4,6",
    ),
    "no more than an output": (lambda x, weight: {"y": x}, "N,8,4,6"),
}


@pytest.mark.parametrize("name", STAYING)
def test_what_nobody_wants_so_stays(name: str) -> None:
    graph = graph_of(*STAYING[name])

    assert expose_channels_last(graph) is graph
    assert strip_transposes(graph) == Stripped(graph, (), ())


def test_a_program_from_the_cache_does_so_too() -> None:
    engine, options = find_engine("openvino"), EngineOptions("fp32", 1)
    graph = expose_channels_last(graph_of(in_and_out))
    program = engine.compile(graph, {"weight": random(8, 8, 1, 1)}, options)
    x = random(2, 8, 4, 6)

    restored = engine.restore(memoryview(bytearray(program.export() or b"")), options)

    expected, found = program.run({"x": x}), restored.run({"x": x})
    assert all(np.array_equal(found[name][:], expected[name][:]) for name in expected)
    assert has_channels_last(found["y"][:])


@pytest.mark.parametrize("exact", [True, False])
def test_a_transpose_at_the_edge_is_as_exact_as_its_map(exact: bool) -> None:
    builder = Builder("precise")
    x, weight = builder.input("x", "f32[N,8,4,6]"), builder.param("weight", "f32[8,8,1,1]")
    with builder.exact() if exact else nullcontext():
        y = ops.conv2d(x, weight)
    graph = builder.finish(y=y)

    stripped = strip_transposes(expose_channels_last(graph))

    assert {node.exact for node in stripped.graph} == {exact}

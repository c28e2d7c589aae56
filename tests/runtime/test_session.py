"""Compiling and running: what is given is checked, and the result is the same each time."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from samgraph import ops
from samgraph.errors import CheckpointError, EngineError, InputError, OptionError, SamgraphWarning
from samgraph.graph import Builder
from samgraph.graph.types import Array
from samgraph.runtime import CompiledGraph, CompileOptions, Session
from tests.engines.present import ENGINES
from tests.runtime.graphs import mlp, two_inputs


def session(engine: str = "openvino") -> Session:
    return Session("cpu", CompileOptions(engine=engine, threads=1, cache=False))


@pytest.fixture(params=ENGINES)
def compiled(request: pytest.FixtureRequest) -> CompiledGraph:
    return session(request.param).compile(two_inputs())


def inputs(M: int = 4) -> dict[str, Array]:
    rng = np.random.default_rng(M)
    return {
        "a": rng.standard_normal((2, 3)).astype(np.float32),
        "b": rng.standard_normal((M, 2, 3)).astype(np.float32),
        "index": np.arange(M),
    }


def test_inputs_are_given_by_name_or_as_a_dict(compiled: CompiledGraph) -> None:
    given = inputs()

    ways = [
        compiled.run_numpy(**given),
        compiled.run_numpy(given),
        compiled.run_numpy({"a": given["a"]}, b=given["b"], index=given["index"]),
    ]

    for way in ways:
        np.testing.assert_allclose(way["sum"], given["a"] + given["b"], rtol=1e-6)
        np.testing.assert_array_equal(way["index"], given["index"])
        assert list(way) == ["sum", "index"]
    assert set(given) == {"a", "b", "index"}


def test_an_array_of_any_layout_is_taken(compiled: CompiledGraph) -> None:
    given = inputs()
    transposed = np.asfortranarray(given["b"])
    strided = np.repeat(given["a"], 2, axis=1)[:, ::2]
    fixed = given["index"].copy()
    fixed.flags.writeable = False

    found = compiled.run_numpy(a=strided, b=transposed, index=fixed)

    np.testing.assert_array_equal(found["sum"], compiled.run_numpy(given)["sum"])


@pytest.mark.parametrize("M", [0, 1, 9])
def test_a_symbolic_length_may_be_anything_even_none(compiled: CompiledGraph, M: int) -> None:
    found = compiled.run_numpy(inputs(M))

    assert found["sum"].shape == (M, 2, 3)
    assert found["index"].shape == (M,)


WANTED = "a: f32[2,3], b: f32[M,2,3], index: i64[M]"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"a": None},
            f"the inputs of graph `two` do not fit\n  got:      missing `a`\n  expected: {WANTED}",
        ),
        (
            {"c": np.ones(1)},
            f"the inputs of graph `two` do not fit\n  got:      unknown `c`\n  expected: {WANTED}",
        ),
        (
            {"a": None, "A": np.ones((2, 3), np.float32)},
            "the inputs of graph `two` do not fit\n"
            f"  got:      missing `a`, unknown `A`\n  expected: {WANTED}",
        ),
        (
            {"a": np.ones((2, 3))},
            "input `a` has the wrong dtype\n"
            "  got:      float64\n  expected: f32[2,3]\n  hint: a.astype(numpy.float32)",
        ),
        (
            {"a": np.ones((2, 3), ">f4")},
            "input `a` has the wrong dtype\n"
            "  got:      >f4\n  expected: f32[2,3]\n  hint: a.astype(numpy.float32)",
        ),
        (
            {"a": [[1.0] * 3] * 2},
            "input `a` is not a numpy array\n  got:      list\n  expected: f32[2,3]",
        ),
        (
            {"index": np.float32(3)},
            "input `index` is not a numpy array\n  got:      float32\n  expected: i64[M]",
        ),
        (
            {"a": np.ones((3, 2), np.float32)},
            "input `a` has the wrong shape\n  got:      [3, 2]\n  expected: f32[2,3]",
        ),
        (
            {"a": np.ones(6, np.float32)},
            "input `a` has the wrong shape\n  got:      [6]\n  expected: f32[2,3]",
        ),
        (
            {"index": np.arange(3)},
            "input `index` has the wrong shape\n  got:      [3]\n  expected: i64[M] with M=4",
        ),
    ],
)
def test_inputs_that_do_not_fit_are_refused_in_full(
    compiled: CompiledGraph, change: dict[str, Any], message: str
) -> None:
    given = {name: array for name, array in {**inputs(), **change}.items() if array is not None}

    with pytest.raises(InputError) as caught:
        compiled.run_numpy(given)

    assert str(caught.value) == message


def test_lengths_at_which_a_graph_has_no_meaning_are_refused() -> None:
    builder = Builder("cut")
    x = builder.input("x", "f32[M,4]")
    graph = builder.finish(y=x[2:], z=x[:5])

    for engine in ENGINES:
        compiled = session(engine).compile(graph)
        assert compiled.run_numpy(x=np.ones((5, 4), np.float32))["y"].shape == (3, 4)
        with pytest.raises(InputError) as caught:
            compiled.run_numpy(x=np.ones((4, 4), np.float32))
        assert str(caught.value) == (
            "graph `cut` cannot run with M=4\n"
            "  got:      `slice`: outside the tensor, 0:5 of 4\n"
            "  expected: 0 <= start <= end <= length"
        )


def test_missing_weights_are_named() -> None:
    graph, weights = mlp()
    del weights["layers.0.bias"], weights["layers.1.weight"]

    with pytest.raises(CheckpointError) as caught:
        session().compile(graph, weights)

    assert str(caught.value) == (
        "graph `mlp` needs 2 weights that were not given\n"
        "  got:      layers.0.bias, layers.1.weight"
    )


@pytest.mark.parametrize(
    ("array", "got"),
    [
        (np.ones(8, np.float32), "f32[8]"),
        (np.ones(16), "f64[16]"),
        (np.ones((16, 1), np.float32), "f32[16,1]"),
    ],
)
def test_a_weight_of_the_wrong_type_is_named(array: Array, got: str) -> None:
    graph, weights = mlp()

    with pytest.raises(CheckpointError) as caught:
        session().compile(graph, {**weights, "layers.0.bias": array})

    assert str(caught.value) == (
        f"weight `layers.0.bias` has the wrong type\n  got:      {got}\n  expected: f32[16]"
    )


def test_more_weights_than_a_graph_reads_are_no_error() -> None:
    graph, weights = mlp()

    session().compile(graph, {**weights, "other": np.ones(3)})


@pytest.mark.parametrize("engine", ENGINES)
def test_scalars_go_in_and_out(engine: str) -> None:
    builder = Builder("scalars")
    x, w = builder.input("x", "f32[]"), builder.param("w", "f32[]")
    y = x * w + builder.constant(2.0, "f32") * 3
    compiled = session(engine).compile(builder.finish(y=y), {"w": np.array(4, np.float32)})

    found = compiled.run_numpy(x=np.array(10, np.float32))["y"]

    assert found.shape == ()
    assert float(found) == 46


def test_two_runs_are_identical_to_the_last_bit() -> None:
    graph, weights = mlp()
    x = np.random.default_rng(1).standard_normal((50, 8)).astype(np.float32)
    compiled = session().compile(graph, weights)

    runs = [compiled.run_numpy(x=x)["y"].tobytes() for _ in range(10)]
    again = session().compile(graph, weights).run_numpy(x=x)["y"].tobytes()

    assert set(runs) == {again}


def test_threads_that_run_at_once_get_what_one_would() -> None:
    graph, weights = mlp()
    compiled = session().compile(graph, weights)
    rng = np.random.default_rng(2)
    arrays = [rng.standard_normal((n, 8)).astype(np.float32) for n in (1, 3, 7, 20, 64, 2, 9, 33)]
    alone = [compiled.run_numpy(x=array)["y"] for array in arrays]

    def work(number: int) -> bool:
        return all(
            np.array_equal(compiled.run_numpy(x=arrays[number])["y"], alone[number])
            for _ in range(20)
        )

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(8)))


def test_several_threads_may_compile_at_once() -> None:
    graph, weights = mlp()
    x = np.ones((3, 8), np.float32)

    def work(_: int) -> bytes:
        return session().compile(graph, weights).run_numpy(x=x)["y"].tobytes()

    with ThreadPoolExecutor(4) as pool:
        assert len(set(pool.map(work, range(8)))) == 1


def test_a_session_explains_its_choice() -> None:
    chosen = session().compile(*mlp())

    assert session().reason == "openvino on the cpu, 1 thread, fp32"
    assert session("reference").reason == (
        "reference on the cpu, 1 thread, fp32: numpy, node by node: slow"
    )
    assert repr(chosen) == "<compiled mlp: openvino on the cpu, 1 thread, fp32>"
    assert chosen.memory().weights > 0


def test_the_reference_has_no_bf16_and_says_so() -> None:
    with pytest.warns(SamgraphWarning, match="using fp32: engine `reference` has no bf16 on `cpu`"):
        Session("cpu", CompileOptions(engine="reference", precision="bf16", cache=False))


def test_an_unknown_device_is_refused_by_name() -> None:
    with pytest.raises(OptionError) as caught:
        Session("tpu")

    assert str(caught.value) == (
        "there is no device `tpu`\n  expected: auto, cpu, cuda, gpu, npu, mps, xpu or cuda:0"
    )


def test_cuda_is_refused_with_a_way_out() -> None:
    with pytest.raises(EngineError, match="hint: ") as caught:  # no torch, or no GPU
        Session("cuda", CompileOptions(cache=False))

    assert caught.value.hint


def test_what_is_compiled_can_be_looked_at() -> None:
    graph, weights = mlp()
    compiled = session().compile(graph, weights)

    assert compiled.source == graph
    assert [node.op for node in compiled.optimised] == ["linear", "linear"]
    seen: list[str] = []
    session().optimise(graph, lambda name, after: seen.append(f"{name} {len(after)}"))
    assert "fuse_linear_activation 2" in seen


def test_what_depends_on_weights_only_is_computed_once() -> None:
    builder = Builder("embedding")
    x, table = builder.input("x", "f32[M,4]"), builder.param("table", "f32[4,3]")
    position = ops.sin(ops.transpose(table, 1, 0))
    graph = builder.finish(y=x + position[1])
    weights = {"table": np.arange(12, dtype=np.float32).reshape(4, 3)}

    found = session().compile(graph, weights).run_numpy(x=np.zeros((2, 4), np.float32))["y"]

    np.testing.assert_allclose(found[0], np.sin(weights["table"].T)[1], rtol=1e-6)

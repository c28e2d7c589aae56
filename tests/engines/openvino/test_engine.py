"""The OpenVINO engine on whole graphs: against the reference, and what it promises besides."""

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import Phase, given, settings

from samgraph import ops
from samgraph.engines import EngineOptions, find_engine
from samgraph.errors import EngineError, InputError
from samgraph.graph import Builder, Graph
from samgraph.runtime import CompileOptions, Session
from tests.graph.random_graphs import arrays_for, graphs
from tests.ops.agreement import disagreement

SIZES = ({"B": 2, "M": 5}, {"B": 1, "M": 1}, {"B": 3, "M": 0})


@settings(max_examples=40, phases=[Phase.generate])
@given(graphs(steps=8, least=3))
def test_random_graphs_agree_with_the_reference(graph: Graph) -> None:
    options = [CompileOptions(engine=e, threads=1, cache=False) for e in ("reference", "openvino")]
    _, weights = arrays_for(graph, SIZES[0])
    reference, openvino = (Session("cpu", o).compile(graph, weights) for o in options)

    for sizes in SIZES:
        inputs, _ = arrays_for(graph, sizes)
        try:
            expected = reference.run(inputs)
        except InputError:
            with pytest.raises(InputError):
                openvino.run(inputs)
            continue
        actual = openvino.run(inputs)
        for name, want in expected.items():
            problem = disagreement(actual[name], want)
            assert problem is None, f"{name} of\n{graph}\nat {sizes}: {problem}"


def test_outputs_are_the_callers_own_arrays() -> None:
    builder = Builder("same")
    x, w = builder.input("x", "f32[3]"), builder.param("w", "f32[3]")
    y = ops.relu(x)
    fixed = builder.constant(np.ones(3), "f32")
    graph = builder.finish(y=y, again=y, x=x, w=w, fixed=fixed)
    weights = {"w": np.full(3, 5, np.float32)}

    for engine in ("reference", "openvino"):
        compiled = Session("cpu", CompileOptions(engine=engine, cache=False)).compile(
            graph, weights
        )
        given_array = np.array([1, 2, 3], np.float32)
        first = compiled.run(x=given_array)
        for array in first.values():
            array += 100  # each is writable, and nobody else's
        kept = {name: array.tolist() for name, array in first.items()}
        second = compiled.run(x=given_array)

        assert {name: array.tolist() for name, array in first.items()} == kept
        np.testing.assert_array_equal(given_array, [1, 2, 3])
        assert {name: array.tolist() for name, array in second.items()} == {
            "y": [1, 2, 3], "again": [1, 2, 3], "x": [1, 2, 3], "w": [5] * 3, "fixed": [1] * 3,
        }  # fmt: skip


def test_a_dtype_it_does_not_have_is_refused_before_compiling() -> None:
    builder = Builder("wide")
    graph = builder.finish(y=ops.relu(builder.input("x", "f64[2]")))

    with pytest.raises(EngineError) as caught:
        Session("cpu", CompileOptions(engine="openvino", cache=False)).compile(graph)

    assert str(caught.value) == (
        "engine `openvino` has no f64\n"
        "  got:      %x: f64[2]\n"
        "  expected: bool, f16, f32, i32, i64, u8"
    )


def test_bf16_tensors_are_refused_because_their_kernels_may_kill() -> None:
    builder = Builder("half")
    graph = builder.finish(y=ops.relu(builder.input("x", "bf16[2]")))

    with pytest.raises(EngineError, match="engine `openvino` has no bf16"):
        Session("cpu", CompileOptions(engine="openvino", cache=False)).compile(graph)


def test_an_exported_program_runs_the_same() -> None:
    engine, options = find_engine("openvino"), EngineOptions("fp32", 1)
    builder = Builder("exported")
    x = builder.input("x", "f32[M,4]")
    graph = builder.finish(y=ops.gelu(ops.linear(x, builder.param("w", "f32[8,4]"))))
    weights = {"w": np.random.default_rng(0).standard_normal((8, 4)).astype(np.float32)}
    program = engine.compile(graph, weights, options)

    data = program.export()
    assert data is not None
    again = engine.restore(memoryview(bytearray(data)), options)

    array = np.random.default_rng(1).standard_normal((5, 4)).astype(np.float32)
    np.testing.assert_array_equal(program.run({"x": array})["y"], again.run({"x": array})["y"])
    assert program.memory().weights == again.memory().weights == 8 * 4 * 4
    assert program.memory().compiled >= 0


def part(data: bytes) -> bytes:
    return len(data).to_bytes(8, "little") + data


PLAN = (
    b'{"stages": [{"inputs": [], "outputs": [], "kind": "exact", "text": "", "largest": 0}],'
    b' "outputs": [], "weight_bytes": 0,'
    b' "transposed_inputs": [], "transposed_outputs": []}'
)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "a compiled graph has no plan"),
        (part(b"{}"), "a compiled graph has no plan"),
        (part(b"\xff"), "a compiled graph has no plan"),
        (part(PLAN), "a compiled graph is not whole"),
        (part(PLAN) + part(b"abcde"), "OpenVINO could not read a compiled graph"),
        (b"\xff" * 8, "a compiled graph has no plan"),
    ],
)
def test_bytes_that_are_no_program_are_an_error_of_ours(data: bytes, message: str) -> None:
    with pytest.raises(EngineError, match=message):
        find_engine("openvino").restore(memoryview(bytearray(data)), EngineOptions())


def test_a_failure_inside_openvino_is_an_error_of_ours() -> None:
    """The inputs were not checked here, as a session does."""
    engine = find_engine("openvino")
    builder = Builder("run")
    x, y = builder.input("x", "f32[M,4]"), builder.input("y", "f32[4,2]")
    program = engine.compile(builder.finish(z=x @ y), {}, EngineOptions())

    with pytest.raises(EngineError, match="OpenVINO could not run the graph"):
        program.run({"x": np.ones((3, 5), np.float32), "y": np.ones((4, 2), np.float32)})


def test_openvino_is_imported_without_its_reports() -> None:
    code = (
        "import sys; import samgraph.engines.openvino; "
        "print(any(name.startswith('openvino_telemetry.') for name in sys.modules))"
    )

    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert child.stdout.strip() == "False"


def test_index_and_batch_of_one_survive() -> None:
    """OpenVINO's own gather dies of a batch axis of length one (2026.4), and reads outside."""
    builder = Builder("gather")
    x, index = builder.input("x", "f32[N,4,3]"), builder.input("index", "i64[N]")
    row, where = builder.input("row", "i64[5]"), builder.input("where", "i32[4]")
    graph = builder.finish(y=ops.gather(x, index, 1, batch=1), z=ops.gather(row, where, 0))
    compiled = Session("cpu", CompileOptions(cache=False)).compile(graph)

    for count in (1, 2, 0):
        x_array = np.arange(12 * count, dtype=np.float32).reshape(count, 4, 3)
        found = compiled.run(
            x=x_array,
            index=np.full(count, 2),
            row=np.arange(10, 15),
            where=np.array([0, 99, -1, -99], np.int32),
        )
        np.testing.assert_array_equal(found["y"], x_array[:, 2])
        np.testing.assert_array_equal(found["z"], [10, 0, 14, 0])

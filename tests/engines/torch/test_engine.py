"""The torch engine on whole graphs, and what it promises besides numbers."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, settings

from samgraph import ops
from samgraph.engines import Device, EngineOptions, find_engine
from samgraph.errors import EngineError, InputError
from samgraph.graph import Builder, Graph
from samgraph.graph.types import DTYPES, Array, numpy_dtype, type_of
from samgraph.ops import OPS
from samgraph.runtime import CompileOptions, Session, core_count
from tests.engines.torch_devices import devices, on_torch
from tests.graph.random_graphs import arrays_for, graphs
from tests.ops.agreement import disagreement
from tests.tolerances import EXACT_NODE, OP_BF16

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.parity

SIZES = ({"B": 2, "M": 5}, {"B": 1, "M": 1}, {"B": 3, "M": 0})


def array(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@settings(max_examples=30, phases=[Phase.generate])
@given(graphs(steps=8, least=3))
def test_random_graphs_agree_with_the_reference(graph: Graph) -> None:
    _, weights = arrays_for(graph, SIZES[0])
    options = CompileOptions(engine="reference", cache=False)
    reference = Session("cpu", options).compile(graph, weights)
    devices = ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",)
    compiled = [on_torch(device, graph, weights) for device in devices]

    for sizes in SIZES:
        inputs, _ = arrays_for(graph, sizes)
        if sizes["M"] == 0 and "attention" in str(graph):
            continue  # attention over no keys is refused by both: see tests/ops/test_symbolic.py
        try:
            expected = reference.run_numpy(inputs)
        except InputError:  # such as a mean of nothing
            for one in compiled:
                with pytest.raises(InputError):
                    one.run_numpy(inputs)
            continue
        for one in compiled:
            actual = one.run_numpy(inputs)
            for name, want in expected.items():
                problem = disagreement(actual[name], want)
                assert problem is None, f"{name} of\n{graph}\nat {sizes}: {problem}"


@pytest.mark.parametrize("device", devices())
def test_outputs_are_the_callers_own_arrays(device: str) -> None:
    builder = Builder("same")
    x, w = builder.input("x", "f32[3]"), builder.param("w", "f32[3]")
    y = ops.relu(x)
    fixed = builder.constant(np.ones(3), "f32")
    graph = builder.finish(y=y, again=y, x=x, w=w, fixed=fixed)
    compiled = on_torch(device, graph, {"w": np.full(3, 5, np.float32)})
    given_array = np.array([1, 2, 3], np.float32)
    given_array.flags.writeable = False  # torch has no such tensors

    for found in compiled.run_numpy(x=given_array).values():
        found += 100  # each is writable, and nobody else's
    second = compiled.run_numpy(x=given_array)

    assert {name: found.tolist() for name, found in second.items()} == {
        "y": [1, 2, 3], "again": [1, 2, 3], "x": [1, 2, 3], "w": [5] * 3, "fixed": [1] * 3,
    }  # fmt: skip


def two_maps() -> tuple[Graph, dict[str, Array]]:
    """A linear map that is exact, and the same one that is not; then things that follow it."""
    builder = Builder("maps")
    x, w = builder.input("x", "f32[M,64]"), builder.param("w", "f32[32,64]")
    own = builder.param("own", "f32[32,64]")
    with builder.exact():
        exact = ops.linear(x, w)
    loose = ops.linear(x, own)
    moved = ops.relu(ops.transpose(loose, 1, 0))
    graph = builder.finish(exact=exact, loose=loose, added=loose + exact, sine=ops.sin(moved))
    return graph, {"w": array(32, 64), "own": array(32, 64)}


@pytest.mark.parametrize("device", devices())
def test_bf16_is_for_products_that_are_not_exact(device: str) -> None:
    graph, weights = two_maps()
    x = array(5, 64, seed=1)

    whole = on_torch(device, graph, weights).run_numpy(x=x)
    half = on_torch(device, graph, weights, precision="bf16").run_numpy(x=x)

    size = np.abs(whole["exact"]).max()
    assert np.abs(half["exact"] - whole["exact"]).max() <= EXACT_NODE * size
    error = np.abs(half["loose"] - whole["loose"]).max()
    assert 1e-4 * size < error < OP_BF16[0] * size
    assert all(found.dtype == np.float32 for found in half.values())


def spied(monkeypatch: pytest.MonkeyPatch, op: str, record: Callable[..., Any]) -> list[Any]:
    """What `record` gives of the arguments, each time a rule runs."""
    from samgraph.engines.torch.rules import RULES

    seen: list[Any] = []
    rule = RULES[op]

    def spy(*tensors: Any, **attributes: Any) -> Any:
        seen.append(record(*tensors))
        return rule(*tensors, **attributes)

    monkeypatch.setitem(RULES, op, spy)
    return seen


def test_bf16_goes_on_until_float32_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    linear = spied(monkeypatch, "linear", lambda x, w: (x.dtype, w.dtype))
    relu = spied(monkeypatch, "relu", lambda x: x.dtype)
    added = spied(monkeypatch, "add", lambda a, b: (a.dtype, b.dtype))
    sine = spied(monkeypatch, "sin", lambda x: x.dtype)
    graph, weights = two_maps()

    on_torch("cpu", graph, weights, precision="bf16", profile="plain").run_numpy(x=array(5, 64))

    half, whole = torch.bfloat16, torch.float32
    assert linear == [(whole, whole), (half, half)]
    assert (relu, added, sine) == ([half], [(half, whole)], [whole])


def test_weights_that_are_read_in_bf16_are_kept_in_bf16() -> None:
    graph, weights = two_maps()
    engine = find_engine("torch")

    whole = engine.compile(graph, weights, EngineOptions("fp32", 1)).memory()
    half = engine.compile(graph, weights, EngineOptions("bf16", 1)).memory()

    assert (whole.weights, whole.compiled) == (2 * 32 * 64 * 4, 0)
    assert half.weights == 32 * 64 * 4 + 32 * 64 * 2


def product() -> tuple[Graph, dict[str, Array]]:
    builder = Builder("product")
    x, w = builder.input("x", "f32[M,64]"), builder.param("w", "f32[64,64]")
    return builder.finish(y=ops.sin(ops.linear(x, w))), {"w": array(64, 64)}


def process_settings() -> tuple[Any, ...]:
    cudnn = torch.backends.cudnn
    return (
        torch.get_num_threads(),
        torch.get_float32_matmul_precision(),
        cudnn.allow_tf32,
        cudnn.deterministic,
        cudnn.benchmark,
        cudnn.enabled,
    )


@pytest.mark.parametrize("precision", ["highest", "high"])
def test_settings_of_the_process_are_put_back(
    precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = spied(monkeypatch, "sin", lambda _: process_settings())
    graph, weights = product()
    torch.set_float32_matmul_precision(precision)
    before = process_settings()
    try:
        on_torch("cpu", graph, weights, threads=1).run_numpy(x=array(3, 64))

        assert process_settings() == before
    finally:
        torch.set_float32_matmul_precision("highest")
    assert seen == [(1, "highest", False, True, False, True)]


def test_the_newer_setting_of_precision_is_put_back_too(monkeypatch: pytest.MonkeyPatch) -> None:
    products = torch.backends.cuda.matmul
    if not hasattr(products, "fp32_precision"):
        pytest.skip("torch has only the older interface")
    seen = spied(monkeypatch, "sin", lambda _: products.fp32_precision)
    graph, weights = product()
    before, products.fp32_precision = products.fp32_precision, "tf32"
    try:
        on_torch("cpu", graph, weights).run_numpy(x=array(3, 64))

        assert products.fp32_precision == "tf32"
    finally:
        products.fp32_precision = before
    assert seen == ["ieee"]


def test_many_threads_at_once_leave_the_settings_as_they_were() -> None:
    graph, weights = product()
    before = process_settings()
    programs = [on_torch("cpu", graph, weights, threads=n) for n in (1, 2) if n <= core_count()]
    x = array(7, 64)
    expected = programs[0].run_numpy(x=x)["y"]

    with ThreadPoolExecutor(4) as pool:
        results = list(
            pool.map(lambda n: programs[n % len(programs)].run_numpy(x=x)["y"], range(64))
        )

    assert process_settings() == before
    for found in results:
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_a_second_run_gives_the_same_bits() -> None:
    builder = Builder("repeat")
    x = builder.input("x", "f32[2,16,8,8]")
    tokens = ops.transpose(x.reshape(2, 16, 64), 0, 2, 1)
    attended = ops.attention(tokens, tokens, tokens, heads=2, scale=0.3)
    big = ops.resize(x, (21, 13), how="bicubic", antialias=True)
    compiled = on_torch("cpu", builder.finish(a=attended, b=big))

    first, second = (
        compiled.run_numpy(x=array(2, 16, 8, 8)),
        compiled.run_numpy(x=array(2, 16, 8, 8)),
    )

    for name, found in first.items():
        np.testing.assert_array_equal(found, second[name])


@pytest.mark.parametrize("at_once", [1, 65_535])
@pytest.mark.parametrize("device", devices())
def test_attention_over_many_keys_with_narrow_values(
    device: str, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("samgraph.engines.torch.products.MOST_AT_ONCE", at_once)
    builder = Builder("narrow")
    q, k = builder.input("q", "f32[2,100,64]"), builder.input("k", "f32[2,3000,64]")
    v, mask = builder.input("v", "f32[2,3000,16]"), builder.input("mask", "f32[2,1,1,3000]")
    graph = builder.finish(
        plain=ops.attention(q, k, v, heads=1, scale=0.2),
        heads=ops.attention(q, k, v, heads=4, scale=0.2),
        wide=ops.attention(v, v, k, heads=2, scale=0.2),
        masked=ops.attention(q, k, v, mask, heads=4, scale=0.2),
    )
    inputs, _ = arrays_for(graph, {})

    found = on_torch(device, graph).run_numpy(inputs)

    options = CompileOptions(engine="reference", cache=False)
    for name, want in Session("cpu", options).compile(graph).run_numpy(inputs).items():
        assert disagreement(found[name], want) is None, name


def test_every_dtype_crosses_and_comes_back() -> None:
    builder = Builder("across")
    given_arrays: dict[str, Array] = {}
    for dtype in DTYPES:
        for name, shape in ((f"{dtype}.matrix", (3, 2)), (f"{dtype}.scalar", ())):
            given_arrays[name] = np.ones(shape).astype(numpy_dtype(dtype))
    outputs = {name: builder.input(name, type_of(x)) for name, x in given_arrays.items()}
    compiled = on_torch("cpu", builder.finish(outputs))

    found = compiled.run_numpy(given_arrays)

    for name, want in given_arrays.items():
        assert found[name].dtype == want.dtype
        assert found[name].shape == want.shape
        assert (found[name] == want).all()


def test_a_number_too_large_for_a_dtype_is_infinity() -> None:
    builder = Builder("large")
    x = builder.input("x", "f16[2]")
    graph = builder.finish(a=ops.clip(x, 1e9, 1e10), b=ops.pad(x, (0,), (1,), -1e9))

    found = on_torch("cpu", graph).run_numpy(x=np.ones(2, np.float16))

    assert found["a"].tolist() == [np.inf, np.inf]
    assert found["b"].tolist() == [1, 1, -np.inf]


def test_the_engine_says_what_it_is_and_keeps_nothing() -> None:
    engine = find_engine("torch")
    graph, weights = product()

    assert engine.version() == f"{torch.__version__}|cpu"
    assert engine.ops == set(OPS)
    assert engine.compile(graph, weights, EngineOptions()).export() is None
    with pytest.raises(EngineError, match="the torch engine keeps nothing in a cache"):
        engine.restore(memoryview(b""), EngineOptions())


def test_a_session_tells_where_it_runs() -> None:
    one = CompileOptions(engine="torch", threads=1, cache=False)
    half = CompileOptions(engine="torch", threads=1, precision="bf16", cache=False)

    assert Session("cpu", one).reason == "torch on the cpu, 1 thread, fp32"
    on_cpu = Session("auto", one).reason if not torch.cuda.is_available() else "torch on the cpu"
    assert on_cpu.startswith("torch on the cpu")
    assert Session("cpu", half).reason == (
        "torch on the cpu, 1 thread, bf16: products rounded to bf16 but computed in fp32, "
        "as on a GPU and no faster"
    )


def test_cuda_where_there_is_none_is_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)

    with pytest.raises(EngineError) as caught:
        Session("cuda")

    assert str(caught.value) == (
        "device `cuda` cannot be used here\n"
        f"  got:      torch {torch.__version__}, which sees no CUDA device\n"
        '  hint: use device="cpu", or install a torch built for CUDA'
    )


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
def test_cuda_where_there_is_one_is_the_torch_engine() -> None:
    assert Session("cuda", CompileOptions(cache=False)).reason == "torch on cuda, fp32"
    assert torch.cuda.get_device_name() in find_on("cuda").version()


def find_on(device: str) -> Any:
    return find_engine("torch").on(Device(device))


def test_a_failure_inside_torch_is_an_error_of_ours() -> None:
    """The inputs were not checked here, as a session does."""
    graph, weights = product()
    program = find_engine("torch").compile(graph, weights, EngineOptions())

    with pytest.raises(EngineError, match="torch could not run `linear` of graph `product`"):
        program.run({"x": torch.ones((3, 64), dtype=torch.int64)})

"""Finding engines, and what the reference engine promises."""

import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from samgraph import ops
from samgraph.engines import Device, EngineOptions, engine_names, find_engine
from samgraph.engines.devices import KINDS
from samgraph.engines.openvino.engine import OpenVinoEngine
from samgraph.errors import EngineError, OptionError
from samgraph.graph import Builder, Graph
from samgraph.graph.registry import ENGINE_OPS
from samgraph.graph.verifier import verify
from samgraph.ops import OPS
from samgraph.passes import optimise, passes_for
from samgraph.runtime import CompileOptions, Session
from tests.engines.present import ENGINES

ONES = np.ones(3, np.float32)


def test_an_unknown_engine_is_refused_by_name() -> None:
    with pytest.raises(OptionError) as caught:
        find_engine("tpu")

    assert str(caught.value) == f"there is no engine `tpu`\n  expected: {', '.join(engine_names())}"


def test_an_engine_whose_library_is_missing_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in [name for name in sys.modules if name.startswith("samgraph.engines.openvino")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "openvino", None)

    with pytest.raises(EngineError, match=r"engine `openvino` cannot be loaded(.|\n)*hint: pip"):
        find_engine("openvino")


@pytest.mark.parametrize("name", ENGINES)
def test_an_engine_declares_itself(name: str) -> None:
    engine = find_engine(name)

    assert engine.name == name
    assert engine.version()
    assert engine.ops <= {*OPS, *ENGINE_OPS}
    assert "f32" in engine.dtypes
    assert set(engine.devices) <= set(KINDS)
    assert all("fp32" in precisions for precisions in engine.devices.values())
    assert engine.on(Device("cpu")).name == name


def all_that_openvino_lacks() -> Graph:
    builder = Builder("lacks")
    tokens, image = (
        builder.input("tokens", "f32[B,4*F+2,8]"),
        builder.input("image", "f32[B,3,8,8]"),
    )
    scale, shift = builder.param("scale", "f32[3]"), builder.param("shift", "f32[3]")
    with builder.exact():
        rotated = ops.axial_rope(tokens, grid=(2, 2), theta=100.0, heads=2, unrotated=2)
        normal = ops.layer_norm_2d(image, scale, shift, eps=1e-6)
        small = ops.resize(image, (5, 3), how="bicubic", antialias=True)
    return builder.finish(rotated=rotated, normal=normal, small=small)


@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize("profile", ["fused", "plain"])
def test_what_is_lacking_is_gone_after_the_passes(name: str, profile: str) -> None:
    options = CompileOptions(engine=name, profile=profile, cache=False)

    after = Session("cpu", options).optimise(all_that_openvino_lacks())

    verify(after, legal=find_engine(name).ops)


def test_a_decomposition_of_an_exact_node_is_exact() -> None:
    after = optimise(all_that_openvino_lacks(), passes_for(find_engine("openvino").passes))

    loose = [node for node in after if not node.exact and node.op != "constant"]
    assert not loose


def test_an_op_that_an_engine_lacks_is_refused_before_it_compiles() -> None:
    class Lacking(OpenVinoEngine):
        passes = ()  # a fault: nothing removes what it lacks

    session = Session("cpu", CompileOptions(cache=False))
    lacking: Any = Lacking()
    session._choice = replace(session._choice, engine=lacking)
    session._passes = ()

    with pytest.raises(EngineError, match="engine `openvino` has no op `axial_rope`"):
        session.compile(all_that_openvino_lacks(), {"scale": ONES, "shift": ONES})


def test_the_reference_engine_computes_in_any_dtype() -> None:
    builder = Builder("any")
    graph = builder.finish(y=builder.input("x", "f64[2]") * 3)
    program = find_engine("reference").compile(graph, {}, EngineOptions())

    assert program.run({"x": np.array([1.0, 2.0])})["y"][:].tolist() == [3.0, 6.0]
    assert program.memory().compiled == 0
    assert program.export() is None


def test_the_reference_engine_refuses_what_it_does_not_do() -> None:
    builder = Builder("no")
    graph = builder.finish(y=builder.input("x", "f32[2]"))
    engine = find_engine("reference")

    with pytest.raises(EngineError, match="the graph's own dtypes only"):
        engine.compile(graph, {}, EngineOptions("bf16", 1))
    with pytest.raises(EngineError, match="keeps nothing in a cache"):
        engine.restore(memoryview(b""), EngineOptions())


def test_infinities_and_nan_are_results_without_a_warning() -> None:
    builder = Builder("odd")
    x = builder.input("x", "f32[3]")
    graph = builder.finish(a=ops.log(x), b=ops.sqrt(x), c=ops.exp(x * 1000), d=1 / x)

    program = find_engine("reference").compile(graph, {}, EngineOptions())
    found = program.run({"x": np.array([0, -1, 1], np.float32)})

    assert found["a"][0] == -np.inf
    assert np.isnan(found["b"][1])
    assert found["c"][2] == np.inf
    assert found["d"][0] == np.inf

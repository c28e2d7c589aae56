"""Native attention inside a compiled graph: same numbers, kept on disk, and missing."""

import sys
from pathlib import Path

import numpy as np
import pytest

from samgraph import ops
from samgraph.engines.native import NATIVE_OPS
from samgraph.engines.native import library as native_library
from samgraph.engines.openvino.engine import OpenVinoEngine
from samgraph.graph import Array, Builder, Graph
from samgraph.models.nano.config import NANO
from samgraph.models.sam2.config import CONFIGS
from samgraph.models.sam2.graphs import trace_graphs
from samgraph.runtime import CompileOptions, Profile, Session
from samgraph.runtime.profiles import FUSED
from tests.engines.native.kernels import needs_kernels
from tests.ops.agreement import disagreement

FLASH = Profile("flash", also=("attention_to_flash",))


def memory_graph() -> Graph:
    """Self-attention of 1,024 tokens, cross-attention to a rotated memory, with layers between."""
    builder = Builder("memory")
    x, m = builder.input("x", "f32[B,1024,8]"), builder.input("m", "f32[B,1024*F+Q,4]")
    pointers = builder.input("pointers", "f32[Q]")
    q = ops.linear(x, builder.param("self.q", "f32[8,8]"))
    x = x + ops.attention(q, ops.sin(x), x, heads=2, scale=0.5)
    q = ops.linear(x, builder.param("q", "f32[16,8]"))
    q = ops.axial_rope(q, grid=(32, 32), theta=100.0)
    k = ops.linear(ops.sin(m), builder.param("k", "f32[16,4]"), builder.param("bias", "f32[16]"))
    k = ops.axial_rope(k, grid=(32, 32), theta=100.0, unrotated=pointers.shape[0])
    y = ops.attention(q, k, m, heads=1, scale=0.25)
    return builder.finish(y=ops.linear(y, builder.param("out", "f32[8,4]")) + x, copy=m)


def arrays() -> tuple[dict[str, Array], dict[str, Array]]:
    rng, graph = np.random.default_rng(0), memory_graph()
    shapes = {"x": (2, 1024, 8), "m": (2, 3077, 4), "pointers": (5,)}
    inputs = {name: rng.standard_normal(shape, np.float32) for name, shape in shapes.items()}
    weights = {v.name: rng.standard_normal(v.type.lengths, np.float32) for v in graph.params}
    return inputs, weights


def session(
    folder: Path | None = None, engine: str = "openvino", profile: Profile = FUSED
) -> Session:
    options = CompileOptions(
        engine=engine,
        threads=2,
        cache=folder is not None,
        cache_dir=folder or None,
        profile=profile,
    )
    return Session("cpu", options)


def reference() -> Array:
    inputs, weights = arrays()
    return session(engine="reference").compile(memory_graph(), weights).run_numpy(inputs)["y"]


@needs_kernels
def test_a_graph_with_native_attention_agrees_with_the_reference() -> None:
    inputs, weights = arrays()
    compiled = session(profile=FLASH).compile(memory_graph(), weights)

    found = compiled.run_numpy(inputs)

    assert {node.op for node in compiled.optimised} & NATIVE_OPS == NATIVE_OPS
    assert disagreement(found["y"], reference()) is None
    assert np.array_equal(found["copy"], inputs["m"])


@needs_kernels
def test_it_is_restored_from_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inputs, weights = arrays()
    first = session(tmp_path, profile=FLASH).compile(memory_graph(), weights).run_numpy(inputs)

    def refuse(*_: object) -> None:
        raise AssertionError("compiled again")

    monkeypatch.setattr(sys.modules[OpenVinoEngine.__module__], "build", refuse)
    again = session(tmp_path, profile=FLASH).compile(memory_graph(), weights).run_numpy(inputs)

    assert np.array_equal(first["y"], again["y"])


def test_without_kernels_the_engine_does_it_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    inputs, weights = arrays()
    monkeypatch.setattr(sys.modules[OpenVinoEngine.__module__], "find_kernels", lambda: None)

    compiled = session().compile(memory_graph(), weights)

    assert not {node.op for node in compiled.optimised} & NATIVE_OPS
    assert disagreement(compiled.run_numpy(inputs)["y"], reference()) is None


def test_a_library_of_another_system_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / native_library.NAME).write_bytes(b"not a library")
    monkeypatch.setattr(native_library, "__file__", str(tmp_path / "library.py"))

    assert native_library.find_kernels.__wrapped__() is None


@needs_kernels
@pytest.mark.parametrize("config", [CONFIGS["sam2.1-tiny"], NANO], ids=["tiny", "nano"])
def test_every_attention_over_the_memory_bank_is_native(config: object) -> None:
    graph = trace_graphs(config, ["attend_bank"])["attend_bank"]  # type: ignore[arg-type]

    usual, flash = (
        [node.op for node in session(profile=profile).optimise(graph)] for profile in (FUSED, FLASH)
    )

    layers = config.memory_layers  # type: ignore[attr-defined]
    assert usual.count("rope_key_attention") == flash.count("rope_key_attention") == layers
    assert usual.count("attention") == flash.count("flash_attention") == layers
    assert "flash_attention" not in usual

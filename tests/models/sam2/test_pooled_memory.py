"""Pooled memory: what the graph computes, against attention written out in numpy."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from samgraph.errors import OptionError
from samgraph.models.nano.config import NANO
from samgraph.models.sam2.attention_graphs import attend_memory
from samgraph.models.sam2.config import Sam2Config, find_config, from_json
from samgraph.runtime import CompileOptions, Session
from tests.engines.present import ENGINES
from tests.models.sam2.bench import config_of, known_weights
from tests.tolerances import POOLED_MEMORY

Inputs = dict[str, np.ndarray]
F, Q = 3, 2


@cache
def config() -> Sam2Config:
    return replace(config_of({"config": "test"}).at_size(128), memory_pool=2)


@cache
def inputs(frames: int = F) -> Inputs:
    E, C = config().grid, config().channels
    rng = np.random.default_rng(3)
    return {
        "embedding": rng.standard_normal((1, C, E, E), np.float32),
        "memory": rng.standard_normal((1, frames, E * E, config().memory_channels), np.float32),
        "slots": np.arange(frames)[None],
        "pointers": rng.standard_normal((1, Q, C), np.float32),
        "pointer_times": np.linspace(0, 1, Q, dtype=np.float32)[None],
    }


def attended(chosen: Sam2Config, given: Inputs, engine: str = "reference") -> np.ndarray:
    session = Session("cpu", CompileOptions(engine=engine, cache=False))
    compiled = session.compile(attend_memory(chosen), known_weights(chosen, 100))
    found = compiled.run(given)["embedding"]
    return np.asarray(session.buffers.download(found))


def uniform(given: Inputs) -> Inputs:
    """Memory whose cells are equal within each square of 2 x 2."""
    E, memory = config().grid, given["memory"]
    cells = memory.reshape(1, -1, E // 2, 2, E // 2, 2, memory.shape[-1])
    same = np.broadcast_to(cells[:, :, :, :1, :, :1], cells.shape)
    return {**given, "memory": np.ascontiguousarray(same).reshape(memory.shape)}


@pytest.mark.parametrize("engine", ["openvino", "torch"])
@pytest.mark.parametrize("frames", [1, F])
def test_engines_agree_with_the_reference(engine: str, frames: int) -> None:
    if engine not in ENGINES:
        pytest.skip(f"engine {engine} is not installed")

    found = attended(config(), inputs(frames), engine)

    expected = attended(config(), inputs(frames))
    np.testing.assert_allclose(found, expected, atol=1e-4 * np.abs(expected).max())


def test_one_frame_is_not_pooled() -> None:
    exact = attended(replace(config(), memory_pool=1), inputs(1))

    np.testing.assert_array_equal(attended(config(), inputs(1)), exact)


def test_cells_that_are_alike_lose_little() -> None:
    """Only positions within a square are lost then; cells that differ lose more."""
    errors = []
    for given in (uniform(inputs()), inputs()):
        exact = attended(replace(config(), memory_pool=1), given)
        pooled = attended(config(), given)
        errors.append(np.linalg.norm(pooled - exact) / np.linalg.norm(exact))

    assert errors[0] < POOLED_MEMORY
    assert errors[0] < errors[1]


def test_without_the_weight_of_four_more_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted fault: pooled tokens count once."""
    given = uniform(inputs())
    exact = attended(replace(config(), memory_pool=1), given)
    right = np.linalg.norm(attended(config(), given) - exact)

    monkeypatch.setattr("samgraph.models.sam2.memory_attention.math.log", lambda count: 0.0)

    assert np.linalg.norm(attended(config(), given) - exact) > 1.2 * right


def test_no_file_can_ask_for_it() -> None:
    assert "memory_pool" not in replace(NANO, memory_pool=2).to_json()
    with pytest.raises(OptionError, match="no field `memory_pool`"):
        from_json('{"memory_pool": 2}')
    with pytest.raises(OptionError, match="no field `memory_pool`"):
        find_config({"memory_pool": 2})

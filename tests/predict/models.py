"""The small test model, ready to run; loaded once for all tests."""

from collections.abc import Mapping
from functools import cache
from typing import Any

from samgraph.models.family import SegmentationModel
from samgraph.models.loading import load_model
from samgraph.runtime import CompileOptions
from tests.golden.reading import Golden, golden, shared_golden_dir
from tests.models.sam2.bench import config_of, known_weights


@cache
def small_model(seed: int = 100) -> SegmentationModel:
    """The 256-pixel model of the golden files with the weights of `seed`."""
    config = config_of({"config": "test"})
    return load_model(known_weights(config, seed), config=config, options=CompileOptions(threads=2))


@cache
def tiny_model(engine: str | None = None) -> SegmentationModel:
    """The same at 128 pixels: for rules of bookkeeping, where numbers only have to be equal."""
    config = config_of({"config": "test"})
    small = config.at_size(128)
    options = CompileOptions(engine=engine, threads=2)
    return load_model(known_weights(config, 100), config=small, device="cpu", options=options)


def shared_video(name: str) -> Golden:
    """One of the shared golden videos."""
    folder = shared_golden_dir()
    assert folder is not None
    return Golden(folder / f"video_{name}.npz")


@cache
def shared_model(config: str, seed: int) -> SegmentationModel:
    """A model with the weights of the shared golden files."""
    from tests.models.sam2.test_shared_goldens import manifest, shared_weights

    meta: Mapping[str, Any] = {"config": config}
    tensor = shared_weights().tensor
    weights = {key: tensor(key, shape, seed) for key, shape in manifest()[config].items()}
    return load_model(weights, config=config_of(meta), options=CompileOptions(threads=2))


def own_video(name: str) -> Golden:
    """One of our own golden videos: `test` or `test_fp32mem`."""
    return golden(f"video_{name}")

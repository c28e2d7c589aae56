"""The shared golden files beside the project: the test model, and tiny at its full 1024 pixels."""

import importlib.util
import json
from collections.abc import Mapping
from functools import cache
from types import ModuleType

import pytest

from samgraph.graph import Array
from samgraph.models.sam2 import graphs
from samgraph.models.sam2.config import CONFIGS
from tests.golden.reading import Golden, shared_golden_dir
from tests.models.sam2.bench import Bench, config_of
from tests.models.sam2.comparing import Finding, compare_all, recorded, wrong
from tests.models.sam2.components import run_components

pytestmark = [pytest.mark.shared, pytest.mark.timeout(900)]

# What the reference engine computes in seconds at 1024: its numpy is not made for whole models.
CHEAP = ("points", "dense", "tables", "pointer_times", "decode:click")

# Loosened limits, for two arrays that say more about the recording than about the model.
LOOSENED = {
    # Depends on no weight, yet differs between the two tiny files: in one, a thread of the
    # recording used a coarser sine for half of the rows. The model drops this level, and the
    # other file is held to the usual limit.
    ("sam2_tiny", "enc_pos3"): 2e-4,
    # Mask 0 has 45917 pixels above 0.05 and 46855 above -0.05: one pixel less than the 0.98 that
    # would keep it, and two pixels are within 2e-6 of turning. So the IoU may be of another mask.
    ("sam2_tiny", "heads3_pt_mask_single_ious"): 0.6,
}


@cache
def shared_weights() -> ModuleType:
    """`weights.py` of the shared folder."""
    folder = shared_golden_dir()
    assert folder is not None
    spec = importlib.util.spec_from_file_location("shared_weights", folder / "weights.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@cache
def manifest() -> Mapping[str, Mapping[str, tuple[int, ...]]]:
    """Key and shape of every tensor, by configuration."""
    folder = shared_golden_dir()
    assert folder is not None
    data = json.loads((folder / "manifest.json").read_text())
    return {
        name: {key: tuple(shape) for key, shape in entry["keys"].items()}
        for name, entry in data.items()
    }


def shared_bench(name: str, engine: str) -> tuple[Golden, Bench]:
    folder = shared_golden_dir()
    assert folder is not None
    golden = Golden(folder / f"components_{name}.npz")
    tensor, seed = shared_weights().tensor, golden.weights_seed
    weights: dict[str, Array] = {
        key: tensor(key, shape, seed) for key, shape in manifest()[name].items()
    }
    return golden, Bench(config_of(golden.meta), weights, engine)


def assert_right(name: str, found: dict[str, Finding]) -> None:
    """Everything is within its limit, loosened where the file is off."""
    for (file, array), limit in LOOSENED.items():
        if file == name and array in found:
            assert found.pop(array).error < limit
    assert not wrong(found)


@pytest.mark.parametrize("name", CONFIGS)
def test_a_config_has_the_released_keys_and_shapes(name: str) -> None:
    assert graphs.weight_shapes(CONFIGS[name]) == manifest()[name.replace("-", "_")]


@pytest.mark.parametrize(
    ("name", "engine"),
    [
        ("test256", "reference"),
        ("test256", "openvino"),
        ("sam2.1_tiny", "openvino"),
        ("sam2_tiny", "openvino"),
    ],
)
def test_every_shared_array_is_computed_alike(name: str, engine: str) -> None:
    golden, bench = shared_bench(name, engine)

    found = compare_all(golden, run_components(golden, bench))

    assert set(found) == recorded(golden)
    assert_right(name, found)


@pytest.mark.parametrize("name", ["sam2.1_tiny", "sam2_tiny"])
def test_the_reference_engine_agrees_at_full_size(name: str) -> None:
    golden, bench = shared_bench(name, "reference")

    found = compare_all(golden, run_components(golden, bench, CHEAP))

    assert_right(name, found)

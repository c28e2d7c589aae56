"""MedSAM 2: the tensors of SAM 2.1 tiny at 512 pixels, chosen by name."""

from typing import Any

import numpy as np
import pytest

from samgraph.models.loading import load_model
from samgraph.models.sam2 import graphs
from samgraph.models.sam2.attention_graphs import attend_memory
from samgraph.models.sam2.config import CONFIGS, MEDSAM2, find_config, from_json
from samgraph.runtime import CompileOptions
from tests.models.sam2.bench import known_weights
from tests.models.sam2.test_graphs import decode_inputs
from tests.models.sam2.wiring import attention_inputs

OPTIONS = CompileOptions(cache=False)


def test_it_is_found_by_name_and_has_the_tensors_of_tiny() -> None:
    assert find_config("medsam2") is MEDSAM2
    assert from_json(MEDSAM2.to_json()) == MEDSAM2
    assert (MEDSAM2.image_size, MEDSAM2.grid) == (512, 32)
    assert graphs.weight_shapes(MEDSAM2) == graphs.weight_shapes(CONFIGS["sam2.1-tiny"])


def test_keys_are_rotated_in_its_own_grid() -> None:
    ropes = [node for node in attend_memory(MEDSAM2) if node.op == "axial_rope"]

    assert len(ropes) == 4 * 4
    assert all(node.attributes["grid"] == (32, 32) for node in ropes)


@pytest.mark.parametrize("config", ["medsam2", None])
def test_weights_of_the_shapes_of_tiny_run(config: str | None) -> None:
    weights = known_weights(CONFIGS["sam2.1-tiny"], 5)

    model: Any = load_model(weights, config=config, device="cpu", options=OPTIONS)

    if config is None:  # nothing tells it from tiny
        assert model.config.name == "sam2.1-tiny"
        return
    image = np.random.default_rng(0).standard_normal((1, 3, 512, 512), np.float32)
    encoded = model.run("image_encoder", image=image)
    assert encoded["embedding"].shape == (1, 256, 32, 32)
    decoded = model.run("decode", **decode_inputs(MEDSAM2, 1, 2) | encoded)
    assert decoded["masks"].shape == (1, 4, 128, 128)
    given = attention_inputs(MEDSAM2, 1, 1, 1) | {"embedding": encoded["embedding"]}
    recalled = model.run("memory_attention", **given)["embedding"]
    assert recalled.shape == (1, 256, 32, 32)
    assert all(np.isfinite(array).all() for array in (decoded["masks"], recalled))

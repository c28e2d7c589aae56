"""The references themselves: they have the released shapes, and still give the stored numbers."""

import importlib.util
import json
from typing import Any

import numpy as np
import pytest

from tests import tolerances, weights
from tests.golden.configs import CONFIGS, OFFICIAL
from tests.golden.reading import Golden, golden, shared_golden_dir

pytestmark = pytest.mark.parity
SHARED = shared_golden_dir()
needs_shared = pytest.mark.skipif(SHARED is None, reason="no reference data beside the project")


@pytest.fixture(scope="module", autouse=True)
def _packages() -> None:
    pytest.importorskip("torch")
    pytest.importorskip("sam2")


@pytest.mark.shared
@needs_shared
@pytest.mark.parametrize("name", ["test256", *OFFICIAL])
def test_a_built_reference_has_the_released_keys_and_shapes(name: str) -> None:
    from tests.parity import reference

    assert SHARED is not None
    manifest = json.loads((SHARED / "manifest.json").read_text())

    model = reference._construct(CONFIGS[name])

    released = {key: tuple(shape) for key, shape in manifest[name]["keys"].items()}
    assert reference.state_shapes(model) == released


@pytest.mark.shared
@needs_shared
def test_a_built_reference_gives_the_shared_numbers() -> None:
    from tests.parity import reference

    assert SHARED is not None
    file = Golden(SHARED / "components_test256.npz")
    shapes = json.loads((SHARED / "manifest.json").read_text())["test256"]["keys"]
    shared_weights = _shared_weights()
    state = {k: shared_weights.tensor(k, shape, file.weights_seed) for k, shape in shapes.items()}
    model = reference.build_reference("test256", state=state)

    stages = reference.encoder_stages(model, file.input("in_image"))
    position = stages["pos2"].reshape(1, 256, -1).transpose(2, 0, 1)
    curr, memory, memory_pos = (
        file.input(f"in_attn_{name}") for name in ("curr", "c_memory", "c_memory_pos")
    )
    attended = reference.memory_attention(model, curr, position, memory, memory_pos, 64)

    for name, array in stages.items():
        assert file.compare(f"enc_{name}", array) < tolerances.ENCODER, name
    assert file.compare("attn_c_out", attended["out"]) < tolerances.MEMORY_ATTENTION


@pytest.mark.parametrize(
    "name", ["components_test", "components_test2", "image_test", "video_test_fp32mem"]
)
def test_the_stored_numbers_are_those_of_the_reference_of_today(name: str) -> None:
    from tests.golden import make

    file = golden(name)

    again = make.record(name)

    for key, array in again.whole.items():
        if key.endswith("_bits"):
            assert file.disagreement(key, array) <= tolerances.VIDEO_PIXELS_SMALL, key
        else:
            assert file.compare(key, array) < tolerances.MEMORY_ATTENTION, key
    assert list(again.index) == file.names()


def test_both_references_agree_from_the_same_weights() -> None:
    pytest.importorskip("transformers")
    names = pytest.importorskip("samgraph.checkpoint.transformers_names")
    from tests.parity import reference, transformers_reference

    meta = reference.build_reference("test", seed := 14)
    state = weights.state(reference.state_shapes(meta), seed)
    give = transformers_reference.state_from_meta(state, names.meta_name)
    other = transformers_reference.build_transformers("test", state_for=give)
    image = np.random.RandomState(0).standard_normal((1, 3, 256, 256)).astype(np.float32)
    coords = np.array([[[77.0, 102.0]], [[154.0, 180.0]]], np.float32)
    labels = np.array([[1], [0]], np.int32)

    features = reference.image_encoder(meta, image)
    embed = features["vision_features"] + state["no_mem_embed"].reshape(1, -1, 1, 1)
    prompt = reference.prompt_encoder(meta, coords, labels)
    high = features["conv_s0"], features["conv_s1"]
    one = reference.mask_decoder(meta, embed, *prompt, *high, multimask=True, repeat_image=True)
    two = transformers_reference.segment(other, image, coords, labels, multimask=True)

    absmax = np.abs(one["masks"]).max()
    assert np.abs(one["masks"] - two["masks"]).max() / absmax < tolerances.DECODER
    assert np.abs(one["ious"] - two["ious"]).max() < tolerances.IOU
    assert np.abs(one["object_score"] - two["score"]).max() < tolerances.OBJECT_SCORE


def _shared_weights() -> Any:
    assert SHARED is not None
    spec = importlib.util.spec_from_file_location("shared_weights", SHARED / "weights.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module

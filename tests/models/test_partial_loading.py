"""Checkpoints that lack something: of image-only models, of other training code, of 8 bits."""

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from samgraph.checkpoint.builtin import NANO
from samgraph.checkpoint.match import MEMORY
from samgraph.errors import CheckpointError, SamgraphWarning
from samgraph.predict.model import Model, load
from tests.models.sam2.bench import config_of, known_weights
from tests.predict.models import tiny_model
from tests.predict.pictures import picture
from tests.tolerances import INT8_MASKS

PHOTOGRAPH = Path(__file__).parents[2] / "docs" / "media" / "chelsea.jpg"
CONFIG = config_of({"config": "test"})
LOADING: dict[str, Any] = {"config": CONFIG, "image_size": 128, "threads": 2, "device": "cpu"}


def weights() -> dict[str, Any]:
    return dict(known_weights(CONFIG, 100))


@pytest.fixture(scope="module")
def image_only() -> Model:
    kept = {name: array for name, array in weights().items() if not name.startswith(MEMORY)}
    return load(kept, **LOADING)


def test_an_image_only_checkpoint_gives_the_same_masks(image_only: Model) -> None:
    image, whole = image_only.image(picture()), Model(tiny_model()).image(picture())
    prompts: list[dict[str, Any]] = [
        {"points": [(40, 50)]},
        {"box": (10, 20, 60, 70), "multimask": False},
    ]
    for prompt in prompts:
        found, wanted = image.predict(**prompt), whole.predict(**prompt)
        assert np.array_equal(found.logits, wanted.logits)
        again, other = image.predict(mask=found, **prompt), whole.predict(mask=wanted, **prompt)
        assert np.array_equal(again.logits, other.logits)


def test_an_image_only_checkpoint_cannot_track_and_says_so(image_only: Model) -> None:
    assert image_only.report.missing
    calls: list[Callable[[], object]] = [
        image_only.stream,
        lambda: image_only.video([picture()]),
        lambda: image_only.resume("state.safetensors"),
    ]
    for call in calls:
        with pytest.raises(CheckpointError, match="no video memory: it segments images only"):
            call()
    with pytest.raises(CheckpointError, match="has no weights for `memory_encoder`"):
        _ = image_only.graphs["memory_encoder"]


def test_an_image_only_model_is_saved_and_sent(image_only: Model, tmp_path: Path) -> None:
    image_only.save(tmp_path / "image.safetensors")
    again = load(tmp_path, threads=2, device="cpu")
    sent = pickle.loads(pickle.dumps(image_only))

    for model in (again, sent):
        assert set(model.report.missing) == set(image_only.report.missing)
        with pytest.raises(CheckpointError, match="images only"):
            model.stream()


def test_unless_strict_what_is_there_is_loaded() -> None:
    given = {**weights(), "ema.step": np.zeros(3, np.float32)}
    with pytest.raises(CheckpointError, match="0 missing, 1 unexpected"):
        load(given, **LOADING)
    del given["image_encoder.neck.convs.0.conv.bias"]

    with pytest.warns(SamgraphWarning, match="1 missing, 1 unexpected"):
        model = load(given, strict=False, **LOADING)

    assert model.report.missing == ("image_encoder.neck.convs.0.conv.bias",)
    assert model.report.unexpected == ("ema.step",)
    with pytest.raises(CheckpointError, match=r"`image_encoder.neck.convs.0.conv.bias` and 0 more"):
        model.image(picture())


def test_unless_strict_a_model_is_recognised_by_what_it_is_close_to() -> None:
    from samgraph.checkpoint import Checkpoint
    from samgraph.models.loading import recognise
    from tests.checkpoint.tables import meta_shapes

    shapes = meta_shapes("2.1", "tiny")
    tensors = {name: np.broadcast_to(np.float32(0), shape) for name, shape in shapes.items()}
    del tensors["image_encoder.trunk.pos_embed"]
    with pytest.raises(CheckpointError, match="1 missing"):
        recognise(Checkpoint(tensors))

    assert recognise(Checkpoint(tensors), strict=False)[1].name == "sam2.1-tiny"


def test_weights_in_8_bits_find_the_masks_of_the_built_in_model(tmp_path: Path) -> None:
    whole = load(threads=2)
    whole.save(tmp_path / "nano.safetensors", "int8")
    small = load(tmp_path / "nano.safetensors", threads=2)

    size = (tmp_path / "nano.safetensors").stat().st_size
    assert size < 0.53 * NANO.size_bytes  # which is in fp16
    image, other = small.image(PHOTOGRAPH), whole.image(PHOTOGRAPH)
    height, width = other.size_hw
    for x, y in [(0.5, 0.5), (0.3, 0.6), (0.7, 0.4), (0.5, 0.8)]:
        point: dict[str, Any] = {"points": [(x * width, y * height)]}
        found, wanted = image.predict(**point).masks, other.predict(**point).masks
        overlap = np.logical_and(found, wanted).sum() / np.logical_or(found, wanted).sum()
        assert overlap > INT8_MASKS

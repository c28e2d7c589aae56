"""Families: the registry, and a toy that works everywhere without a line in `predict/`."""

from pathlib import Path

import numpy as np
import pytest

import samgraph
from samgraph import models
from samgraph.errors import CheckpointError, OptionError
from samgraph.graph import Array
from samgraph.predict.model import Model
from samgraph.predict.video.video import Video
from tests.models import toy_family

SIZE_HW = (48, 80)


@pytest.fixture
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(models.FOLDERS, "toy", "tests.models.toy_family")


def weights() -> dict[str, Array]:
    """Cells are bright or dark; the head adds the channels up."""
    trunk = np.full((toy_family.CHANNELS, 3, 4, 4), 1 / 48, np.float32)
    return {"trunk.weight": trunk, "head.weight": np.ones((1, toy_family.CHANNELS), np.float32)}


def picture(left: int) -> np.ndarray:
    """A white square on black."""
    image = np.zeros((*SIZE_HW, 3), np.uint8)
    image[12:36, left : left + 24] = 255
    return image


def overlap(mask: np.ndarray, left: int) -> float:
    truth = picture(left)[..., 0] > 0
    return float((mask & truth).sum() / (mask | truth).sum())


@pytest.mark.usefixtures("_registered")
def test_a_family_is_recognised_saved_and_loaded(tmp_path: Path) -> None:
    model = samgraph.load(weights())

    model.save(tmp_path / "toy.safetensors")
    again = samgraph.load(tmp_path / "toy.safetensors")

    assert (model.core.family, again.core.family) == ("toy", "toy")
    assert again.config == model.config


@pytest.mark.usefixtures("_registered")
@pytest.mark.parametrize("engine", ["openvino", "reference"])
def test_images_everything_videos_and_streams_know_nothing_of_families(
    engine: str, tmp_path: Path
) -> None:
    model = samgraph.load(weights(), engine=engine)

    result = model.image(picture(20)).predict(points=[(30, 20)])
    assert overlap(result.mask, 20) > 0.6
    found = model.everything(picture(20), points_per_side=4, stability_score_thresh=0)
    assert len(found.segments) >= 1
    video = model.video([picture(20 + 2 * i) for i in range(6)])
    video.add(frame=0, object=1, points=[(30, 20)])
    frames = list(video.track())
    assert [overlap(frame.masks[0], 20 + 2 * i) > 0.6 for i, frame in enumerate(frames)] == [
        True
    ] * 6
    video.save(tmp_path / "session.safetensors")
    resumed = model.resume(tmp_path / "session.safetensors", source=[picture(20)] * 6)
    assert isinstance(resumed, Video)
    assert resumed.objects == (1,)
    check_stream(model)


def check_stream(model: Model) -> None:
    stream = model.stream()
    stream.step(picture(20))
    stream.add(object="square", mask=picture(20)[..., 0] > 0)
    assert overlap(stream.step(picture(24)).masks[0], 24) > 0.6


@pytest.mark.usefixtures("_registered")
def test_a_checkpoint_of_no_family_is_refused() -> None:
    with pytest.raises(CheckpointError):
        samgraph.load({"something.else": np.zeros(3, np.float32)})


def test_a_family_that_does_not_exist_is_named() -> None:
    with pytest.raises(OptionError, match="no model family `sam9`"):
        models.find_family("sam9")

"""Several images: encoded in batches, prompted together, each as if alone."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from samgraph.errors import ImageError, OptionError, PromptError
from samgraph.predict.image.batch import EncodedImages
from tests import tolerances
from tests.golden import scenes
from tests.predict.pictures import model

PICTURES = [scenes.frame(0), scenes.frame(4)[:90], scenes.frame(8)[:, :100]]


@pytest.fixture(scope="module")
def images() -> EncodedImages:
    return model().images(PICTURES, batch=2)


def test_images_come_in_order(images: EncodedImages) -> None:
    assert len(images) == 3
    assert [image.size_hw for image in images] == [(120, 160), (90, 160), (120, 100)]
    assert images[1].size_hw == (90, 160)
    assert [image.size_hw for image in images[1:]] == [(90, 160), (120, 100)]
    assert repr(images) == "<3 images, encoded by test>"


def test_each_image_is_predicted_as_if_alone(images: EncodedImages) -> None:
    points = [[(40, 50)], [[(20, 30)], [(90, 80), (5, 5)]], None]
    boxes = [None, None, [(5, 6, 70, 80)]]
    masks = [None, None, images[2].predict(points=[(50, 50)])]

    results = images.predict(points=points, boxes=boxes, mask=masks)

    assert [len(result) for result in results] == [3, 6, 3]
    for i, (image, result) in enumerate(zip(images, results, strict=True)):
        alone = image.predict(points=points[i], boxes=boxes[i], mask=masks[i])
        assert np.abs(alone.logits - result.logits).max() < tolerances.IMAGE_LOGITS
        assert (alone.masks != result.masks).mean() < tolerances.IMAGE_PIXELS
        assert result.size_hw == image.size_hw


def test_a_batch_is_the_same_as_single_images(images: EncodedImages) -> None:
    maps = [image.embedding.features.maps for image in (model().image(PICTURES[1]), images[1])]
    alone, together = (one["embedding"][:] for one in maps)

    scale = np.abs(alone).max()
    assert np.abs(alone - together).max() / scale < tolerances.ENCODER


def test_one_bad_file_stops_the_rest_unless_it_is_skipped(tmp_path: Path) -> None:
    bad = tmp_path / "bad.png"
    bad.write_bytes(b"no")
    sources: list[Any] = [PICTURES[0], bad, PICTURES[2]]

    with pytest.raises(ImageError, match=r"bad\.png"):
        model().images(sources)
    images = model().images(sources, on_error="skip")

    assert [image.size_hw for image in images] == [(120, 160), (120, 100)]
    assert ["bad.png" in failure.what for failure in images.failures] == [True]
    assert repr(images) == "<2 images, encoded by test, 1 left out>"


def test_no_images_are_no_results() -> None:
    assert model().images([]).predict(points=[]) == []


def test_prompts_must_be_given_for_each_image(images: EncodedImages) -> None:
    with pytest.raises(PromptError, match="an entry for each image"):
        images.predict(points=[[(1, 2)]])
    with pytest.raises(PromptError) as caught:
        images.predict(points=[[(1, 2)], [(1, 2)], [(130, 2)]])

    assert any("image 2" in note for note in caught.value.__notes__)


@pytest.mark.parametrize("source", ["a.png", Path("a.png"), b"a", scenes.frame(0)])
def test_one_image_is_not_a_list_of_them(source: Any) -> None:
    with pytest.raises(ImageError, match=r"for one image there is `model\.image`"):
        model().images(source)


def test_a_misspelt_prompt_is_named_in_the_error(images: EncodedImages) -> None:
    with pytest.raises(OptionError, match=r"has no option `pionts`(.|\n)*did you mean `points`"):
        images.predict(pionts=[])  # type: ignore[call-arg]  # that is what is tested


def test_options_out_of_range_are_refused() -> None:
    with pytest.raises(OptionError, match="`batch` is out of range"):
        model().images([], batch=0)
    with pytest.raises(OptionError, match="`on_error` cannot be `ignore`"):
        model().images([], on_error="ignore")  # type: ignore[arg-type]

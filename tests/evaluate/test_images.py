"""Figures of photographs: the prompts, and what is compared."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from samgraph.errors import ImageError
from samgraph.evaluate.images import Overlaps, find_pairs, image_figures
from tests.predict.pictures import HEIGHT, WIDTH, encoded


def label_map(**boxes: tuple[int, int, int, int]) -> np.ndarray[Any, Any]:
    labels = np.zeros((HEIGHT, WIDTH), np.uint8)
    for name, (left, top, right, bottom) in boxes.items():
        labels[top:bottom, left:right] = int(name.removeprefix("n"))
    return labels


class Oracle:
    """An image with known masks per kind of prompt, which records its prompts."""

    def __init__(self, boxed: Any, clicked: list[Any]) -> None:
        self.name, self.size_hw = "oracle.png", boxed.shape
        self.picture = encoded().picture
        self.asked: list[dict[str, Any]] = []
        self._boxed, self._clicked = boxed, clicked

    def predict(self, **prompt: Any) -> Any:
        self.asked.append(prompt)
        mask = self._boxed if "box" in prompt else self._clicked[len(prompt["points"]) - 1]
        return Answer(mask)


class Answer:
    def __init__(self, mask: Any) -> None:
        self.mask = mask
        self.best = self


def measure(oracle: Oracle, labels: Any) -> dict[int, Overlaps]:
    return image_figures(oracle, labels)  # type: ignore[arg-type]  # an image by duck typing


def test_figures_worked_out_by_hand() -> None:
    labels = label_map(n7=(10, 10, 30, 30))
    truth = labels == 7
    half, quarter = label_map(n7=(10, 10, 20, 30)) == 7, label_map(n7=(10, 10, 20, 20)) == 7
    oracle = Oracle(half, [quarter, half, truth])

    figures = measure(oracle, labels)

    assert figures == {7: Overlaps(box=0.5, one_click=0.25, five_clicks=1.0)}
    assert figures[7].by_prompt() == {"box": 0.5, "1 click": 0.25, "5 clicks": 1.0}


def test_the_prompts_are_those_of_the_papers() -> None:
    labels = label_map(n1=(10, 10, 31, 31))
    truth = labels == 1
    rest = truth & ~(label_map(n1=(10, 10, 20, 31)) == 1)
    oracle = Oracle(truth, [truth & ~rest, truth])

    measure(oracle, labels)

    box, first, second = oracle.asked
    assert box == {"box": (10.0, 10.0, 31.0, 31.0), "multimask": False}
    assert first["points"] == [(20.5, 20.5)]
    assert first["labels"] == [1]
    assert first["multimask"] is True
    assert first["mask"] is None
    assert len(second["points"]) == 2
    assert second["multimask"] is False
    assert isinstance(second["mask"], Answer)


def test_ignored_pixels_do_not_count() -> None:
    labels = label_map(n1=(10, 10, 30, 30), n255=(30, 10, 50, 30))
    too_much = labels > 0
    oracle = Oracle(too_much, [too_much])

    assert measure(oracle, labels)[1] == Overlaps(1.0, 1.0, 1.0)


def test_every_object_has_its_own_figures_and_the_mean_is_over_objects() -> None:
    labels = label_map(n1=(10, 10, 30, 30), n2=(60, 10, 80, 30))
    first = labels == 1
    oracle = Oracle(first, [first] * 5)

    figures = measure(oracle, labels)

    assert figures == {1: Overlaps(1, 1, 1), 2: Overlaps(0, 0, 0)}
    assert Overlaps.mean(list(figures.values())) == Overlaps(0.5, 0.5, 0.5)


def test_a_mask_of_black_and_white_is_one_object() -> None:
    labels = label_map(n255=(10, 10, 30, 30))
    oracle = Oracle(labels > 0, [labels > 0])

    assert measure(oracle, labels) == {255: Overlaps(1, 1, 1)}


def test_a_real_model_takes_all_prompts() -> None:
    real = encoded()
    labels = label_map(n1=(17, 27, 63, 73), n2=(100, 66, 136, 102))

    figures = image_figures(real, labels)

    box = real.predict(box=(17, 27, 63, 73), multimask=False).mask
    truth = labels == 1
    assert set(figures) == {1, 2}
    assert figures[1].box == np.count_nonzero(box & truth) / np.count_nonzero(box | truth)
    assert all(0 <= value <= 1 for value in figures[2].by_prompt().values())


def test_masks_that_do_not_fit_are_named() -> None:
    with pytest.raises(ImageError, match=r"`scene.png` and its mask differ in size"):
        image_figures(encoded(), np.zeros((5, 6), np.uint8))
    with pytest.raises(ImageError, match=r"the mask of `scene.png` has no object"):
        image_figures(encoded(), label_map())


def test_folders_by_other_names(tmp_path: Path) -> None:
    for name in ("JPEGImages", "SegmentationObject", "elsewhere"):
        (tmp_path / name).mkdir()
    for path in ("JPEGImages/x.JPG", "SegmentationObject/x.png", "elsewhere/x.png"):
        (tmp_path / path).touch()

    photograph = tmp_path / "JPEGImages" / "x.JPG"
    assert find_pairs(tmp_path) == [(photograph, tmp_path / "SegmentationObject" / "x.png")]
    elsewhere = tmp_path / "elsewhere"
    assert find_pairs(tmp_path, elsewhere) == [(photograph, elsewhere / "x.png")]


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ([], "does not exist"),
        (["images/a.jpg", "masks/readme.txt"], "there is no mask in"),
        (["images/a.jpg", "masks/b.png"], "has no photograph"),
        (["masks/a.png"], "has no photograph"),
    ],
)
def test_a_folder_that_is_not_complete(tmp_path: Path, files: list[str], says: str) -> None:
    for name in files:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()

    with pytest.raises(ImageError, match=says):
        find_pairs(tmp_path)

"""Data sets in the layout of DAVIS: what is found, what is not complete, rounds of clicks."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from samgraph.errors import VideoError
from samgraph.evaluate.sequences import evaluate_sequence, find_sequences
from samgraph.predict.model import Model


def make(folder: Path, *files: str) -> None:
    for name in files:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()


@pytest.mark.parametrize("level", ["", "480p/", "Full-Resolution/"])
def test_sequences_are_found_at_any_resolution(level: str, tmp_path: Path) -> None:
    for name in ("b", "a"):
        make(tmp_path, f"JPEGImages/{level}{name}/0.jpg", f"Annotations/{level}{name}/0.png")

    found = find_sequences(tmp_path)

    assert [sequence.name for sequence in found] == ["a", "b"]
    assert found[0].frames == tmp_path / f"JPEGImages/{level}a"
    assert found[0].annotations == (tmp_path / f"Annotations/{level}a/0.png",)
    assert [sequence.name for sequence in find_sequences(tmp_path, ["b"])] == ["b"]


@pytest.mark.parametrize(
    ("files", "names", "message"),
    [
        ([], (), "`.*JPEGImages` does not exist"),
        (["JPEGImages/a/0.jpg"], (), "`.*Annotations` does not exist"),
        (["JPEGImages/a/0.jpg", "Annotations/a/0.txt"], (), "sequence `a` is not complete"),
        (["JPEGImages/a/0.jpg", "Annotations/b/0.png"], (), "sequence `b` is not complete"),
        (["JPEGImages/a/0.jpg", "Annotations/a/0.png"], ("c",), "has no sequence `c`"),
    ],
)
def test_what_is_missing_is_named(
    files: list[str], names: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    make(tmp_path, *files)

    with pytest.raises(VideoError, match=message):
        find_sequences(tmp_path, names)


class Scripted:
    """A model whose videos find what they are told, and note the clicks they get."""

    def __init__(self, masks: list[NDArray[np.bool_]]) -> None:
        self.masks, self.added = masks, list[dict[str, Any]]()

    def video(self, frames: Path, **options: Any) -> "Scripted":
        return self

    def __enter__(self) -> "Scripted":
        return self

    def __exit__(self, *error: object) -> None: ...

    def add(self, **given: Any) -> None:
        self.added.append(given)
        for (x, y), label in zip(given["points"], given.get("labels", []), strict=False):
            self.masks[given["frame"]][int(y), int(x)] = label

    def track(self, start: int, end: int) -> Iterator[Any]:
        for index in range(start, end + 1):
            yield SimpleNamespace(index=index, mask=lambda label, i=index: self.masks[i])


def test_each_round_corrects_the_worst_error_of_the_worst_frame(tmp_path: Path) -> None:
    truth = np.zeros((4, 6, 8), np.uint8)
    truth[:, 1:4, 2:5] = 1
    truth[2, 5] = 255  # ignored
    for index, labels in enumerate(truth):
        for name, picture in (("JPEGImages/a", labels), ("Annotations/a", labels)):
            (tmp_path / name).mkdir(parents=True, exist_ok=True)
            suffix = "jpg" if name.startswith("J") else "png"
            Image.fromarray(picture).save(tmp_path / name / f"{index}.{suffix}")
    masks = [labels == 1 for labels in truth]
    masks[2][5, :2] = True  # no error that is clicked on
    masks[2][2, 3] = False
    masks[1][1:4, 2:5] = False
    model = Scripted(masks)

    (sequence,) = find_sequences(tmp_path)
    found = evaluate_sequence(cast("Model", model), sequence, "click", corrections=2)

    assert model.added == [
        {"frame": 0, "object": 1, "points": [(3.5, 2.5)]},
        {"frame": 1, "object": 1, "points": [(3.5, 2.5)], "labels": [1]},
        {"frame": 1, "object": 1, "points": [(2.5, 1.5)], "labels": [1]},
    ]
    rounds = [found.tracked[1].j, *(figures[1].j for figures in found.corrected)]
    assert rounds == pytest.approx([(right / 9 + 8 / 11) / 2 for right in (0, 1, 2)])


def test_what_is_exact_is_not_corrected(tmp_path: Path) -> None:
    truth = np.zeros((6, 8), np.uint8)
    truth[1:4, 2:5] = 1
    for name in ("JPEGImages/a/0.jpg", "JPEGImages/a/1.jpg", "Annotations/a/0.png"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(truth).save(tmp_path / name)
    Image.fromarray(truth).save(tmp_path / "Annotations/a/1.png")
    model = Scripted([truth == 1, truth == 1])

    (sequence,) = find_sequences(tmp_path)
    found = evaluate_sequence(cast("Model", model), sequence, "click", corrections=1)

    assert len(model.added) == 1
    assert found.corrected == (found.tracked,)

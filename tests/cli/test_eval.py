"""`samgraph eval`: folders in, figures out."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from samgraph.predict.image.encoded import EncodedImage
from tests.cli.running import Outcome, call
from tests.golden import scenes

Command = Callable[..., Outcome]


def draw(labels: dict[int, tuple[int, int, int, int]]) -> Any:
    image = np.zeros((scenes.HEIGHT, scenes.WIDTH), np.uint8)
    for label, (left, top, right, bottom) in labels.items():
        image[top:bottom, left:right] = label
    return image


@pytest.fixture
def photographs(folder: Path) -> Path:
    """`set/images` and `set/masks`: an image with two objects, and an image with one."""
    dataset = folder / "set"
    for name in ("images", "masks"):
        (dataset / name).mkdir(parents=True)
    Image.fromarray(scenes.frame(0)).save(dataset / "images" / "a.jpg", quality=95)
    Image.fromarray(scenes.frame(4)).save(dataset / "images" / "b.png")
    both = draw({1: (17, 27, 63, 73), 9: (100, 66, 136, 102)})
    Image.fromarray(both).save(dataset / "masks" / "a.png")
    Image.fromarray(draw({1: (20, 30, 60, 70)})).convert("P").save(dataset / "masks" / "b.png")
    return dataset


@pytest.fixture
def measure(
    monkeypatch: pytest.MonkeyPatch, weights: Path, samgraph: Command
) -> Callable[..., Outcome]:
    """``measure("images", ...)`` runs `samgraph eval images` with the small model, loaded once."""

    def command(kind: str, *arguments: object) -> Outcome:
        return call(monkeypatch, ["eval", kind, "--model", weights, *arguments])

    return command


def test_figures_of_photographs(photographs: Path, measure: Command) -> None:
    done = measure("images", photographs, "--json")

    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert {name: row["objects"] for name, row in found["images"].items()} == {
        "a.jpg": 2,
        "b.png": 1,
    }
    assert found["mean"]["objects"] == 3
    for prompt in ("box", "1 click", "5 clicks"):
        rows = found["images"]
        over_objects = (2 * rows["a.jpg"][prompt] + rows["b.png"][prompt]) / 3
        assert found["mean"][prompt] == pytest.approx(over_objects)
        assert 0 <= found["mean"][prompt] <= 1


def test_the_table_has_a_line_per_image_and_the_mean(photographs: Path, measure: Command) -> None:
    done = measure("images", photographs)

    title, first, second, mean = done.text.splitlines()
    assert title.split() == ["image", "objects", "box", "1", "click", "5", "clicks"]
    assert first.split()[:2] == ["a.jpg", "2"]
    assert second.split()[:2] == ["b.png", "1"]
    assert mean.startswith("mean over objects")
    assert done.err.startswith("a.jpg: box ")


def test_a_limit_is_kept(photographs: Path, measure: Command) -> None:
    done = measure("images", photographs, "--limit", 1, "--json")

    assert list(json.loads(done.out)["images"]) == ["a.jpg"]


def test_perfect_masks_have_an_iou_of_1(
    photographs: Path, measure: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Right:
        mask = draw({1: (20, 30, 60, 70)}) > 0

        @property
        def best(self) -> "Right":
            return self

    monkeypatch.setattr(EncodedImage, "predict", lambda *_, **__: Right())
    (photographs / "masks" / "a.png").unlink()

    mean = json.loads(measure("images", photographs, "--json").out)["mean"]

    assert mean == {"objects": 1, "box": 1.0, "1 click": 1.0, "5 clicks": 1.0}


def test_what_cannot_be_measured_is_left_out_and_named(photographs: Path, measure: Command) -> None:
    Image.fromarray(np.ones((4, 4), np.uint8)).save(photographs / "masks" / "b.png")

    done = measure("images", photographs, "--json")

    assert done.code == 3
    assert "left out: `b.png` and its mask differ in size" in done.err
    assert list(json.loads(done.out)["images"]) == ["a.jpg"]

    Image.fromarray(np.ones((4, 4), np.uint8)).save(photographs / "masks" / "a.png")
    done = measure("images", photographs)
    assert done.code == 2
    assert "error: `a.jpg` and its mask differ in size" in done.err


@pytest.fixture
def sequence(folder: Path) -> Path:
    """`davis/`: one sequence of four frames in which nothing moves."""
    for name in ("JPEGImages", "Annotations"):
        (folder / "davis" / name / "still").mkdir(parents=True)
    labels = Image.fromarray(draw({1: (17, 27, 63, 73)}))
    for index in range(4):
        frame = Image.fromarray(scenes.frame(0))
        frame.save(folder / "davis" / "JPEGImages" / "still" / f"{index}.png")
        labels.save(folder / "davis" / "Annotations" / "still" / f"{index}.png")
    return folder / "davis"


@pytest.mark.parametrize("prompt", ["mask", "click", "box"])
def test_clips_are_compared_with_copying_the_first_mask(
    sequence: Path, measure: Command, prompt: str
) -> None:
    done = measure("davis", sequence, "--prompt", prompt, "--json")

    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert found["sequences"] == {"still": found["mean"]}
    assert found["mean"]["copied"] == {"J&F": 1.0, "J": 1.0, "F": 1.0}  # as nothing moves
    assert 0 <= found["mean"]["J"] <= 1


def test_policies_can_be_compared(sequence: Path, measure: Command) -> None:
    done = measure("davis", sequence, "--policy", "distractor-aware", "--json")
    refused = measure("davis", sequence, "--policy", "best")

    assert done.code == 0, done.err
    assert 0 <= json.loads(done.out)["mean"]["J&F"] <= 1
    assert refused.code == 2
    assert "motion-aware" in refused.err


def test_the_table_of_clips_has_both(sequence: Path, measure: Command) -> None:
    lines = measure("davis", sequence).text.splitlines()

    assert " ".join(lines[0].split()) == "sequence objects J&F J F copied J&F copied J"
    assert lines[1].split()[:2] == ["still", "1"]
    assert lines[1].split()[-2:] == ["100.0", "100.0"]
    assert lines[2].startswith("mean over objects")


def test_frames_may_be_without_annotation(sequence: Path, measure: Command) -> None:
    everything = json.loads(measure("davis", sequence, "--json").out)
    (sequence / "Annotations" / "still" / "1.png").unlink()
    fewer = json.loads(measure("davis", sequence, "--json").out)

    assert fewer["mean"]["copied"] == everything["mean"]["copied"]
    assert 0 <= fewer["mean"]["J"] <= 1

    annotation = sequence / "Annotations" / "still"
    (annotation / "2.png").rename(annotation / "seven.png")
    done = measure("davis", sequence)
    assert done.code == 2
    assert "do not belong together" in done.err


def test_a_given_frame_is_not_counted_and_that_is_said(sequence: Path, measure: Command) -> None:
    for name in ("JPEGImages", "Annotations"):
        (sequence / name / "single").mkdir()
    Image.fromarray(scenes.frame(0)).save(sequence / "JPEGImages" / "single" / "0.png")
    labels = Image.fromarray(draw({1: (17, 27, 63, 73)}))
    labels.save(sequence / "Annotations" / "single" / "0.png")

    both = measure("davis", sequence, "--json")
    alone = measure("davis", sequence, "--sequence", "single")

    assert (both.code, alone.code) == (0, 2)
    found = json.loads(both.out)
    assert (list(found["sequences"]), found["not_counted"]) == (["still"], ["single"])
    assert "single: nothing to count" in both.err
    assert "there is nothing to count" in alone.err

"""`samgraph convert`: a run or annotations in another format, with no model."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from samgraph.cli.options import ModelChoice
from samgraph.formats import read_coco, read_cvat, read_davis, read_yolo
from samgraph.formats.yolo import CLASS_FILE
from samgraph.media.image.reading import read_label_image
from samgraph.media.video.frames import open_frames
from tests.cli.running import Outcome, call
from tests.golden import scenes

Run = Callable[..., Outcome]
FRAMES = 3


@pytest.fixture
def run_folder(folder: Path, samgraph: Run) -> Path:
    """`out/`: a cup and a dog on three images, with names of their own."""
    (folder / "frames").mkdir()
    labels = np.zeros((scenes.HEIGHT, scenes.WIDTH), np.uint8)
    labels[30:70, 20:60], labels[70:100, 100:130] = 1, 2
    for name, value in (("cup", 1), ("dog", 2)):
        Image.fromarray((labels == value).astype(np.uint8)).save(f"{name}.png")
    for index in range(FRAMES):
        Image.fromarray(scenes.frame(index)).save(folder / "frames" / f"img_{index}.png")
    masks = [f"--mask={name}.png@{f}:{name}" for name in ("cup", "dog") for f in range(FRAMES)]
    given = ("--format", "davis", "--format", "coco", "-o", "out", "--quiet")
    done = samgraph("track", "frames", *masks, *given)
    assert (done.code, done.err, done.text) == (0, "", "")
    return folder / "out"


@pytest.fixture
def convert(monkeypatch: pytest.MonkeyPatch) -> Run:
    """``convert(...)`` runs the command; loading a model fails."""

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a model was loaded")

    def command(*arguments: object) -> Outcome:
        with monkeypatch.context() as patch:
            patch.setattr(ModelChoice, "load", refuse)
            return call(patch, ["convert", *arguments])

    return command


def files(folder: str) -> dict[str, bytes]:
    root = Path(folder)
    found = sorted(path for path in root.rglob("*") if path.is_file())
    return {str(path.relative_to(root)): path.read_bytes() for path in found}


def test_a_journal_becomes_what_the_run_would_have_written(run_folder: Path, convert: Run) -> None:
    assert convert("out/frames.jsonl", "--format", "davis", "-o", "davis").code == 0
    assert convert("out", "--format", "coco", "-o", "coco").code == 0
    assert convert("out", "-o", "a.json").code == 0

    assert files("davis") == files("out/davis")
    assert list(files("davis")) == [f"img_{index}.png" for index in range(FRAMES)]
    assert files("coco") == files("out/coco")
    assert Path("a.json").read_bytes() == (run_folder / "coco/annotations.json").read_bytes()


@pytest.mark.usefixtures("run_folder")
def test_sav_has_a_folder_per_object(convert: Run) -> None:
    done = convert("out", "--format", "sav", "-o", "sav", "--json")

    names = [f"img_{index}.png" for index in range(FRAMES)]
    assert sorted(os.listdir("sav")) == ["001", "002"]
    assert sorted(os.listdir("sav/002")) == names
    assert len(json.loads(done.text)["written"]) == 2 * FRAMES
    dog = read_label_image("out/davis/img_1.png") == 2
    assert dog.any()
    assert np.array_equal(read_label_image("sav/002/img_1.png"), dog)


@pytest.mark.usefixtures("run_folder")
def test_several_formats_have_a_folder_each(convert: Run) -> None:
    both = ("--format", "davis", "--format", "coco")
    done = convert("out", *both, "-o", "all")
    without = convert("out", *both, "--format", "overlay", "-o", "more")
    file = convert("out", *both, "-o", "all.json")

    assert (done.code, without.code, file.code) == (0, 2, 2)
    written, run = files("all"), files("out")
    assert written
    assert all(run[name] == data for name, data in written.items())
    assert {name.split("/")[0] for name in written} == {"davis", "coco"}
    assert "--images" in without.err
    assert not Path("more").exists()
    assert "several formats need a folder" in file.err


@pytest.mark.usefixtures("run_folder")
def test_formats_that_show_the_image_are_told_where_it_is(convert: Run) -> None:
    without = convert("out", "--format", "overlay", "-o", "over.mp4")
    done = convert("out", "--format", "overlay", "--images", "frames", "-o", "over.mp4")
    cut = convert("out", "--format", "cutout", "--images", "frames", "-o", "cut")
    Image.fromarray(scenes.frame(0)[:50]).save("small.png")
    wrong = convert("out", "--format", "cutout", "--images", "small", "-o", "wrong")

    assert without.code == 2
    assert "--images" in without.err
    assert (done.code, cut.code, wrong.code) == (0, 0, 2)
    with open_frames("over.mp4") as video:
        assert video.length == FRAMES
    assert sorted(os.listdir("cut"))[:2] == ["img_0_1.png", "img_0_2.png"]
    assert not Path("wrong").exists() or not os.listdir("wrong")


@pytest.mark.usefixtures("run_folder")
def test_annotations_become_other_annotations(convert: Run) -> None:
    assert convert("out/coco/annotations.json", "-o", "a.xml").code == 0
    assert convert("a.xml", "--format", "yolo", "-o", "labels").code == 0
    assert convert("out/davis", "--format", "coco", "-o", "b.json").code == 0

    first = read_coco("out/coco/annotations.json")
    for again in (read_cvat("a.xml"), read_coco("b.json")):
        for one, other in zip(first, again, strict=True):
            masks = [segment.mask for segment in one.segments]
            assert all(
                np.array_equal(mask, segment.mask)
                for mask, segment in zip(masks, other.segments, strict=True)
            )
    assert Path("labels", CLASS_FILE).read_text() == "cup\ndog\n"
    size_hw = first[0].size_hw
    assert [s.label for s in read_yolo("labels/img_0.txt", size_hw).segments] == ["cup", "dog"]


@pytest.mark.usefixtures("run_folder")
def test_what_cannot_be_converted_is_one_error(convert: Run) -> None:
    Path("empty.jsonl").write_text("")
    Path("notes.txt").write_text("x")
    for arguments, message in (
        (["none.jsonl", "--format", "coco", "-o", "x"], "cannot be read"),
        (["empty.jsonl", "--format", "coco", "-o", "x"], "no object on any frame"),
        (["notes.txt", "--format", "coco", "-o", "x"], "is not MOTS"),
        (["out", "-o", "x"], "does not say what to write"),
        (["out", "--format", "jsonl", "-o", "x"], "jsonl"),
    ):
        done = convert(*arguments)
        assert done.code == 2, arguments
        assert message in done.err
        assert "Traceback" not in done.err


def test_a_frame_cannot_name_a_file_elsewhere(run_folder: Path, convert: Run) -> None:
    journal = run_folder / "frames.jsonl"
    journal.write_text(journal.read_text().replace('"img_0.png"', '"../../evil.png"'))

    assert convert("out", "--format", "davis", "-o", "deep/er").code == 0

    assert sorted(os.listdir("deep/er")) == ["evil.png", "img_1.png", "img_2.png"]
    assert not Path("evil.png").exists()
    assert len(read_davis("deep/er")) == FRAMES


@pytest.mark.usefixtures("run_folder")
def test_labels_of_the_run_are_kept(samgraph: Run, convert: Run) -> None:
    given = ("--mask", "cup.png:1", "--mask", "dog.png:2", "--end", "0", "--quiet")
    labels = ("--label", "mug", "--label", "hound")
    assert (
        samgraph("track", "frames", *given, *labels, "--format", "jsonl", "-o", "named").code == 0
    )

    assert convert("named", "-o", "named.json").code == 0
    assert convert("named", "--label", "thing", "-o", "thing.json").code == 0

    (image,) = read_coco("named.json")
    assert [segment.label for segment in image.segments] == ["mug", "hound"]
    (image,) = read_coco("thing.json")
    assert {segment.label for segment in image.segments} == {"thing"}

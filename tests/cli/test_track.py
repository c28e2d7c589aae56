"""`samgraph track`: what it writes, what it refuses, and how it resumes."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from samgraph.formats import read_coco, read_cvat, read_davis, read_label_studio, read_labelme
from samgraph.jobs import track as track_run
from samgraph.jobs.journal import Journal
from samgraph.media.video.frames import open_frames
from tests.cli.running import Outcome
from tests.golden import scenes

Run = Callable[..., Outcome]
FRAMES = 5
BOX = ("--box", "17,27,63,73")


@pytest.fixture
def frames(folder: Path) -> Path:
    """`frames/`, with five images."""
    path = folder / "frames"
    path.mkdir()
    for index in range(FRAMES):
        Image.fromarray(scenes.frame(index)).save(path / f"{index}.png")
    return path


def journal(folder: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(folder, "frames.jsonl").read_text().splitlines()]


def contents(folder: str) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(Path(folder).iterdir())}


@pytest.mark.usefixtures("frames")
def test_a_palette_image_and_a_line_per_frame(samgraph: Run) -> None:
    outcome = samgraph("track", "frames", *BOX, "--point", "118,84:2", "-o", "out")

    assert outcome.code == 0, outcome.err
    assert "5 frames in out" in outcome.err
    assert sorted(os.listdir("out")) == [
        "0.png", "1.png", "2.png", "3.png", "4.png", "frames.jsonl", "run.json",
    ]  # fmt: skip
    lines = journal("out")
    assert [line["frame"] for line in lines] == list(range(FRAMES))
    for line, image in zip(lines, read_davis("out"), strict=True):
        assert [obj["id"] for obj in line["objects"]] == [1, 2]
        for obj in line["objects"]:
            assert obj["area"] >= sum(s.area for s in image.segments if s.object_id == obj["id"])
    ending = json.loads(Path("out/run.json").read_text())["ending"]
    assert ending == {"written": 5, "skipped": 0, "attempted": 5, "damage": None}


@pytest.mark.usefixtures("frames")
def test_masks_annotations_lines_and_a_video(samgraph: Run) -> None:
    given = ("track", "frames", *BOX, "--end", "2")
    names = {}

    for kind in ("png", "coco", "jsonl", "overlay"):
        outcome = samgraph(*given, "--format", kind, "-o", kind)
        assert outcome.code == 0, outcome.err
        names[kind] = sorted(set(os.listdir(kind)) - {"run.json", "frames.jsonl"})

    assert names == {
        "png": ["0_1.png", "1_1.png", "2_1.png"],
        "coco": ["annotations.json"],
        "jsonl": [],
        "overlay": ["overlay.mp4"],
    }
    areas = [line["objects"][0]["area"] for line in journal("jsonl")]
    with_mask = [image for image in read_coco("coco/annotations.json") if image.segments]
    assert [image.segments[0].area for image in with_mask] == [area for area in areas if area]
    assert [np.count_nonzero(np.asarray(Image.open(f"png/{n}"))) for n in names["png"]] == areas
    with open_frames("overlay/overlay.mp4") as video:
        assert video.length == 3


@pytest.mark.usefixtures("frames")
def test_a_policy_is_part_of_the_run(samgraph: Run) -> None:
    done = samgraph("track", "frames", *BOX, "-o", "out", "--policy", "motion-aware")
    other = samgraph("track", "frames", *BOX, "-o", "out", "--resume")

    assert done.code == 0, done.err
    assert json.loads(Path("out", "run.json").read_text())["options"]["policy"] == "motion-aware"
    assert other.code == 2
    assert "another run: not the same options" in other.err
    assert "got:      policy sam2\n  expected: policy motion-aware\n" in other.err


@pytest.mark.usefixtures("frames")
def test_several_formats_have_a_folder_each(samgraph: Run) -> None:
    names = ("davis", "cutout", "labelme", "yolo", "cvat", "label-studio", "sam", "polygons")
    formats = [word for name in names for word in ("--format", name)]

    boxes = ("--box", "17,27,63,73:cup", "--box", "17,27,63,73@1:cup")
    outcome = samgraph(
        "track", "frames", *boxes, "--end", "1", *formats, "--format", "jsonl", "-o", "out"
    )

    assert outcome.code == 0, outcome.err
    folders = [path for path in Path("out").iterdir() if path.is_dir()]
    assert {path.name: sorted(os.listdir(path)) for path in folders} == {
        "davis": ["0.png", "1.png"],
        "cutout": ["0_1.png", "1_1.png"],
        "labelme": ["0.json", "1.json"],
        "yolo": ["0.txt", "1.txt", "classes.txt"],
        "cvat": ["annotations.xml"],
        "label-studio": ["tasks.json"],
        "sam": ["masks.json"],
        "polygons": ["polygons.json"],
    }  # fmt: skip
    expected = [line["objects"][0]["area"] for line in journal("out")]
    assert min(expected) > 0
    for images in (
        read_cvat("out/cvat/annotations.xml"),
        read_label_studio("out/label-studio/tasks.json"),
        [read_labelme(f"out/labelme/{index}.json") for index in range(2)],
        read_davis("out/davis"),
    ):
        assert [image.segments[0].area for image in images] == expected
    assert Path("out/yolo/classes.txt").read_text() == "cup\n"
    with Image.open("out/cutout/1_1.png") as cut:
        assert np.count_nonzero(np.asarray(cut)[..., 3]) == expected[1]
        frame = np.asarray(Image.open("frames/1.png"))
        inside = np.asarray(cut)[..., 3] > 0
        assert np.array_equal(np.asarray(cut)[inside][:, :3], frame[inside])


@pytest.mark.usefixtures("frames")
def test_prompts_on_other_frames_and_for_named_objects(samgraph: Run) -> None:
    outcome = samgraph(
        "track", "frames", "--point", "60,50@2:dog", "--negative", "5,5@2:dog", "--point",
        "118,70@3:7", "--both", "-o", "out",
    )  # fmt: skip

    assert outcome.code == 0, outcome.err
    assert [line["frame"] for line in journal("out")] == [2, 3, 4, 1, 0]
    assert [obj["id"] for obj in journal("out")[0]["objects"]] == [7, "dog"]
    run = json.loads(Path("out/run.json").read_text())
    assert run["objects"] == {"7": 7, "dog": 1}
    assert run["prompts"][1]["labels"] == [1, 0]


@pytest.mark.usefixtures("frames")
def test_an_object_may_be_number_0_where_that_is_not_the_background(samgraph: Run) -> None:
    given = ("--point", "40,50:0", "--end", "0", "--format", "png")

    assert samgraph("track", "frames", *given, "-o", "out").code == 0

    assert [obj["id"] for obj in journal("out")[0]["objects"]] == [0]
    assert Path("out/0_0.png").exists()


@pytest.mark.usefixtures("frames")
def test_a_mask_with_several_values_is_an_object_per_value(samgraph: Run) -> None:
    labels = np.zeros((scenes.HEIGHT, scenes.WIDTH), np.uint8)
    labels[30:70, 20:60], labels[70:100, 100:130] = 1, 4
    Image.fromarray(labels).save("first.png")
    Image.fromarray(labels > 0).save("one.png")

    several = samgraph("track", "frames", "--mask", "first.png", "--end", "1", "-o", "a")
    single = samgraph("track", "frames", "--mask", "one.png@1:3", "--reverse", "-o", "b")

    assert (several.code, single.code) == (0, 0), several.err + single.err
    assert [obj["id"] for obj in journal("a")[0]["objects"]] == [1, 4]
    assert [line["frame"] for line in journal("b")] == [1, 0]
    assert [obj["id"] for obj in journal("b")[0]["objects"]] == [3]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["frames", "-o", "out"], "nothing to track"),
        (["frames", *BOX], "--output"),
        (["frames", "--point", "1,2,3", "-o", "out"], "2 numbers"),
        (["frames", "--point", "1,2@x", "-o", "out"], "numbers"),
        (["frames", "--point", "900,2", "-o", "out"], "outside"),
        (["frames", "--point", "1,2@77", "-o", "out"], "no frame 77"),
        (["frames", *BOX, *BOX, "-o", "out"], "two boxes"),
        (["frames", *BOX, "--start", "9", "-o", "out"], "no frame 9"),
        (["frames", *BOX, "--start", "3", "--end", "1", "-o", "out"], "no frame to track"),
        (["frames", "--point", "1,2:0", "-o", "out"], "object `0` does not fit in a palette"),
        (["frames", "--point", "1,2:256", "-o", "out"], "object `256` does not fit in a palette"),
        (["frames", "--mask", "zero.png", "-o", "out"], "marks nothing"),
        (["frames", "--mask", "mask.png", *BOX, "-o", "out"], "a mask and another prompt"),
        (["frames", *["--mask", "mask.png"] * 2, "-o", "out"], "a mask and another prompt"),
        (["frames", *BOX, "--both", "--reverse", "-o", "out"], "both directions"),
        (["frames", "--mask", "none.png", "-o", "out"], "does not exist"),
        (["frames", "--mask", "a.png", "-o", "out"], "one number per pixel"),
        (["nothing.mp4", *BOX, "-o", "out"], "does not exist"),
        (["bad.png", *BOX, "-o", "out"], "not a video"),
        (["http://x/y.mp4", *BOX, "-o", "out"], "not fetched"),
        (["frames", *BOX, "-o", "out", "--max-memory-mb", "1"], "does not fit"),
        (["frames", *BOX, "-o", "a.png"], "is a file"),
        (["frames", *BOX, "-o", "frames"], "holds other files"),
    ],
)
@pytest.mark.usefixtures("frames")
def test_what_cannot_be_done_is_an_error_and_leaves_nothing(
    samgraph: Run, arguments: list[str], message: str
) -> None:
    before = sorted(os.listdir("frames"))
    empty = np.zeros((scenes.HEIGHT, scenes.WIDTH), np.bool_)
    Image.fromarray(empty).save("zero.png")
    Image.fromarray(~empty).save("mask.png")

    outcome = samgraph("track", *arguments)

    assert outcome.code == 2, outcome.err
    assert message in outcome.err
    assert "Traceback" not in outcome.err
    assert not Path("out").exists()
    assert sorted(os.listdir("frames")) == before


@pytest.mark.usefixtures("frames")
def test_an_output_folder_belongs_to_one_run(samgraph: Run) -> None:
    assert samgraph("track", "frames", *BOX, "--end", "1", "-o", "out").code == 0
    before = contents("out")

    again = samgraph("track", "frames", *BOX, "--end", "1", "-o", "out")
    other = samgraph("track", "frames", "--point", "40,50", "--end", "1", "-o", "out", "--resume")
    done = samgraph("track", "frames", *BOX, "--end", "1", "-o", "out", "--resume")
    little = samgraph(
        "track", "frames", *BOX, "--end", "1", "-o", "out", "--resume", "--max-memory-mb", "64"
    )

    assert (again.code, other.code, done.code, little.code) == (2, 2, 0, 0)
    assert "--resume" in again.err
    assert "another run: not the same prompts" in other.err
    assert contents("out") == before


class _StopError(Exception):
    pass


@pytest.mark.parametrize("kind", ["davis", "overlay", "cutout"])
@pytest.mark.parametrize("with_session", [True, False])
@pytest.mark.usefixtures("frames")
def test_a_stopped_run_ends_with_the_same_files(
    samgraph: Run, monkeypatch: pytest.MonkeyPatch, kind: str, with_session: bool
) -> None:
    given = ("track", "frames", "--point", "60,50@1", "--both", "--format", kind)
    assert samgraph(*given, "-o", "whole").code == 0
    append = Journal.append
    monkeypatch.setattr(track_run, "SESSION_SECONDS", 0.0 if with_session else 1e9)

    for stop in (1, 3, 4):

        def stopping(self: Journal, record: dict[str, Any], stop: int = stop) -> None:
            append(self, record)
            if len(self.frames) == stop:
                raise _StopError

        monkeypatch.setattr(Journal, "append", stopping)
        outcome = samgraph(*given, "-o", "parts", "--resume")
        assert outcome.code == 1
        assert len(journal("parts")) == stop
    monkeypatch.setattr(Journal, "append", append)
    last = samgraph(*given, "-o", "parts", "--resume")

    assert last.code == 0, last.err
    assert contents("parts") == contents("whole")


@pytest.mark.usefixtures("frames")
def test_an_interruption_saves_everything(samgraph: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    append = Journal.append

    def interrupted(self: Journal, record: dict[str, Any]) -> None:
        append(self, record)
        if record["frame"] == 2:
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(Journal, "append", interrupted)
    outcome = samgraph("track", "frames", *BOX, "-o", "out")

    assert outcome.code == 130
    assert "interrupted\n  hint: run it again with --resume to continue\n" in outcome.err
    assert len(journal("out")) == 3
    assert Path("out/.session.safetensors").exists()
    monkeypatch.setattr(Journal, "append", append)
    assert samgraph("track", "frames", *BOX, "-o", "out", "--resume").code == 0
    assert len(journal("out")) == FRAMES
    assert not Path("out/.session.safetensors").exists()


@pytest.mark.usefixtures("frames")
def test_a_line_that_was_cut_short_is_written_again(samgraph: Run) -> None:
    assert samgraph("track", "frames", *BOX, "--end", "2", "-o", "out").code == 0
    before = contents("out")
    whole = Path("out/frames.jsonl").read_bytes()
    Path("out/frames.jsonl").write_bytes(whole[:-20])
    run = json.loads(Path("out/run.json").read_text())
    del run["ending"]
    Path("out/run.json").write_text(json.dumps(run))
    Path("out/.1.png.abc.part").write_bytes(b"half")

    assert samgraph("track", "frames", *BOX, "--end", "2", "-o", "out", "--resume").code == 0

    assert contents("out") == before


@pytest.mark.usefixtures("frames")
def test_damage_that_is_skipped_has_its_exit_code(samgraph: Run) -> None:
    Path("frames/2.png").write_bytes(b"no image")

    strict = samgraph("track", "frames", *BOX, "-o", "a")
    skipped = samgraph("track", "frames", *BOX, "-o", "b", "--on-damage", "skip")
    failed = samgraph("track", "frames", *BOX, "-o", "c", "--on-damage", "skip", "--strict")
    again = samgraph("track", "frames", *BOX, "-o", "b", "--on-damage", "skip", "--resume")

    assert (strict.code, skipped.code, failed.code, again.code) == (2, 3, 2, 3)
    assert "4 written + 1 skipped = 5" in skipped.err
    assert [line["frame"] for line in journal("b")] == [0, 1, 3, 4]


def test_a_full_disk_is_an_error_and_what_was_written_stays(
    samgraph: Run, frames: Path, weights: Path
) -> None:
    """A child that may write no file beyond a size, as if the disk ended there."""
    objects = [f"--point={x},50:{x}" for x in (20, 40, 60, 80)]
    arguments = ["track", str(frames), *objects, "--format", "jsonl", "--quiet"]
    assert samgraph(*arguments, "-o", "whole").code == 0
    whole = Path("whole/frames.jsonl").read_bytes()
    first, second, *_ = whole.splitlines(keepends=True)
    limit = len(first) + len(second) // 2
    assert Path("whole/run.json").stat().st_size < limit
    code = (
        f"import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}));"
        "from samgraph.cli.main import main; main(sys.argv[1:])"
    )

    child = subprocess.run(
        [sys.executable, "-c", code, *arguments, "-o", "out", "--model", str(weights)],
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )

    assert child.returncode == 2, child.stderr
    assert "`out/frames.jsonl` cannot be written" in child.stderr
    assert Path("out/frames.jsonl").read_bytes() == first
    assert samgraph(*arguments, "-o", "out", "--resume").code == 0
    assert contents("out") == contents("whole")


@pytest.mark.usefixtures("frames")
def test_overwriting_removes_what_the_run_wrote_and_nothing_else(samgraph: Run) -> None:
    formats = ("--format", "sav", "--format", "png", "--format", "yolo")
    assert samgraph("track", "frames", *BOX, *formats, "-o", "out").code == 0
    Path("out/png/notes.png").write_text("mine")

    refused = samgraph("track", "frames", *BOX, "--end", "1", "-o", "out")
    done = samgraph("track", "frames", *BOX, "--end", "1", "-o", "out", "--overwrite")
    both = samgraph("track", "frames", *BOX, "-o", "out", "--overwrite", "--resume")

    assert (refused.code, done.code, both.code) == (2, 0, 2), done.err
    assert "--overwrite" in refused.err
    found = {str(path.relative_to("out")) for path in Path("out").rglob("*") if path.is_file()}
    assert found == {"0.png", "1.png", "frames.jsonl", "run.json", "png/notes.png"}


@pytest.mark.usefixtures("frames")
def test_a_folder_that_is_no_run_is_not_overwritten(samgraph: Run) -> None:
    before = contents("frames")

    assert samgraph("track", "frames", *BOX, "-o", "frames", "--overwrite").code == 2

    assert contents("frames") == before


@pytest.mark.usefixtures("frames")
def test_json_lists_every_file_that_was_written(samgraph: Run) -> None:
    done = samgraph(
        "track", "frames", *BOX, "--end", "1", "--format", "davis", "--format", "yolo", "--json",
        "-o", "out",
    )  # fmt: skip

    summary = json.loads(done.text)
    found = {str(path) for path in Path("out").rglob("*") if path.is_file()}
    assert set(summary["written"]) == found
    assert len(found) == 7
    assert (summary["frames"], summary["damage"]) == (2, None)
    assert "frames in out" not in done.err


@pytest.mark.usefixtures("frames")
def test_a_label_belongs_to_its_object(samgraph: Run) -> None:
    objects = ("--box", "17,27,63,73:2", "--box", "100,70,130,100:1", "--end", "0")
    labels = ("--label", "cup", "--label", "dog")

    done = samgraph("track", "frames", *objects, *labels, "--format", "coco", "-o", "out")
    single = samgraph("track", "frames", *objects, *labels[:2], "--format", "yolo", "-o", "one")
    wrong = samgraph("track", "frames", *objects, *labels, "--label", "cat", "-o", "no")

    assert (done.code, single.code, wrong.code) == (0, 0, 2), done.err
    assert json.loads(Path("out/run.json").read_text())["labels"] == {"1": "cup", "2": "dog"}
    (image,) = read_coco("out/annotations.json")
    names = {segment.object_id: segment.label for segment in image.segments}
    assert names.items() <= {1: "cup", 2: "dog"}.items()
    assert names
    assert Path("one/classes.txt").read_text() == "cup\n"
    assert "one --label for each object" in wrong.err


@pytest.mark.usefixtures("frames")
def test_quiet_prints_nothing(samgraph: Run) -> None:
    done = samgraph("track", "frames", *BOX, "--end", "1", "-o", "out", "--quiet")

    assert (done.code, done.out, done.err) == (0, b"", "")

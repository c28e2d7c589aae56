"""`samgraph track --everything`: what it writes, how it resumes, and what it refuses."""

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from samgraph.cli.options import ModelChoice
from samgraph.formats import read_coco, read_davis, read_mots
from samgraph.jobs import track as track_run
from samgraph.jobs.journal import Journal
from samgraph.jobs.track_everything import EverythingJob
from samgraph.predict.model import Model
from tests.cli.running import Outcome, call
from tests.predict.colour_model import ColourModel, disc, draw

Run = Callable[..., Outcome]
FRAMES = 10
RED, BLUE = (200, 40, 40), (40, 60, 200)
EVERYTHING = ("track", "frames", "--everything", "--every", "4", "--points-per-side", "10")


@pytest.fixture
def colour(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """`frames/`: a red disc, and a blue one from frame 3 on; and the command on them."""
    (tmp_path / "frames").mkdir()
    for index in range(FRAMES):
        discs: list[Any] = [(12 + index, 20, 8, RED)]
        if index >= 3:
            discs.append((44, 44, 8, BLUE))
        Image.fromarray(draw(*discs)).save(tmp_path / "frames" / f"{index}.png")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(ModelChoice, "load", lambda _: Model(ColourModel()))
    return lambda *arguments: call(monkeypatch, arguments)


def contents(folder: str) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(Path(folder).rglob("*"))
        if path.is_file()
    }


def test_objects_are_found_and_written_in_every_format_of_tracks(colour: Run) -> None:
    names = ("davis", "coco-vid", "mot", "mots", "sav", "yolo")
    formats = [part for name in names for part in ("--format", name)]

    done = colour(*EVERYTHING, "-o", "out", *formats, "--label", "thing", "--json")

    assert done.code == 0, done.err
    written = {Path(file) for file in json.loads(done.out)["written"]}
    files = {path for path in Path("out").rglob("*") if path.is_file()}
    assert written == files
    lines = [json.loads(line) for line in Path("out/frames.jsonl").read_text().splitlines()]
    assert [[obj["id"] for obj in line["objects"]] for line in lines] == [[1]] * 4 + [[1, 2]] * 6
    images = read_coco("out/coco-vid/annotations.json")
    assert [len(image.segments) for image in images] == [1] * 4 + [2] * 6
    assert images[5].segments[0].label == "thing"
    np.testing.assert_array_equal(images[5].segments[0].mask, disc(17, 20, 8))
    assert [len(image.segments) for image in read_davis("out/davis")] == [1] * 4 + [2] * 6
    assert [image.index for image in read_mots("out/mots/tracks.txt")] == list(range(FRAMES))
    boxes = Path("out/mot/tracks.txt").read_text().splitlines()
    assert boxes[0].startswith("1,1,5,13,17,17,")
    assert len(boxes) == 4 + 2 * 6
    assert sorted(os.listdir("out/sav")) == ["001", "002"]
    assert Path("out/yolo/classes.txt").read_text() == "thing\n"


@pytest.mark.parametrize("with_session", [True, False])
def test_a_stopped_run_ends_with_the_same_files(
    colour: Run, monkeypatch: pytest.MonkeyPatch, with_session: bool
) -> None:
    given = (*EVERYTHING, "--format", "davis", "--format", "mot", "--policy", "quality-gated")
    assert colour(*given, "-o", "whole").code == 0
    append = Journal.append
    monkeypatch.setattr(track_run, "SESSION_SECONDS", 0.0 if with_session else 1e9)

    for stop in (2, 5, 9):

        def stopping(self: Journal, record: dict[str, Any], stop: int = stop) -> None:
            append(self, record)
            if len(self.frames) == stop:
                raise RuntimeError("stopped")

        monkeypatch.setattr(Journal, "append", stopping)
        assert colour(*given, "-o", "parts", "--resume").code == 1
    monkeypatch.setattr(Journal, "append", append)
    last = colour(*given, "-o", "parts", "--resume")

    assert last.code == 0, last.err
    assert contents("parts") == contents("whole")


@pytest.mark.parametrize("when", ["a step", "before the line", "after the line"])
def test_an_interruption_loses_no_frame(
    colour: Run, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    append, remember = Journal.append, ColourModel.encode_memory
    done_frames: list[int] = []

    def stop(is_now: bool) -> None:
        if is_now:
            os.kill(os.getpid(), signal.SIGTERM)

    def appending(self: Journal, record: dict[str, Any]) -> None:
        stop(when == "before the line" and record["frame"] == 6)
        append(self, record)
        done_frames.append(record["frame"])
        stop(when == "after the line" and record["frame"] == 6)

    def remembering(self: ColourModel, *given: Any, **named: Any) -> Any:
        stop(when == "a step" and len(done_frames) == 7)
        return remember(self, *given, **named)

    with monkeypatch.context() as patch:
        patch.setattr(Journal, "append", appending)
        patch.setattr(ColourModel, "encode_memory", remembering)
        stopped = colour(*EVERYTHING, "-o", "out")
    done = colour(*EVERYTHING, "-o", "out", "--resume", "--json")
    whole = colour(*EVERYTHING, "-o", "whole")

    assert (stopped.code, done.code, whole.code) == (130, 0, 0)
    assert json.loads(done.out)["frames"] == FRAMES
    assert contents("out") == contents("whole")


def test_a_run_can_be_replaced_and_converted(colour: Run) -> None:
    assert colour(*EVERYTHING, "-o", "out", "--format", "sav").code == 0
    Path("out/notes.txt").write_text("mine")

    replaced = colour(*EVERYTHING, "-o", "out", "--format", "mots", "--overwrite")
    converted = colour("convert", "out/tracks.txt", "--format", "coco-vid", "-o", "vid.json")
    again = colour("convert", "out/frames.jsonl", "--format", "mot", "-o", "mot.txt")

    assert replaced.code == 0, replaced.err
    assert sorted(os.listdir("out")) == ["frames.jsonl", "notes.txt", "run.json", "tracks.txt"]
    assert (converted.code, again.code) == (0, 0), converted.err + again.err
    assert len(json.loads(Path("vid.json").read_text())["annotations"]) == 16
    assert len(Path("mot.txt").read_text().splitlines()) == 16


def test_a_palette_holds_255_objects() -> None:
    assert EverythingJob("clip.mp4", Path("out")).discovery.max_ids == 255
    assert EverythingJob("clip.mp4", Path("out"), ("mot",)).discovery.max_ids is None


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--everything", "--point", "3,4"), "takes no prompts"),
        (("--everything", "--reverse"), "tracked forward"),
        (("--everything", "--label", "a", "--label", "b"), "one --label"),
        (("--every", "3", "--point", "3,4"), "add --everything"),
        (("--everything", "--start", "99"), "no frame"),
        (("--everything", "--start", "3", "--end", "1"), "no frame"),
    ],
)
def test_what_makes_no_sense_is_one_sentence(
    colour: Run, arguments: tuple[str, ...], sentence: str
) -> None:
    done = colour("track", "frames", *arguments, "-o", "out")

    assert done.code == 2, done.err
    assert sentence in done.err
    assert not Path("out").exists()

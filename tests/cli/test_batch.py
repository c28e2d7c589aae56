"""`samgraph batch`: the four tasks, with the results of the single commands."""

import importlib.util
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from samgraph.formats import read_coco
from samgraph.jobs.batch import run as running
from samgraph.jobs.batch.inputs import Input
from samgraph.jobs.batch.scheduler import Failure
from samgraph.jobs.batch.settings import WorkerSettings
from samgraph.jobs.batch.tasks import TaskOptions, TaskRunner
from samgraph.jobs.prompts import FramePrompt
from samgraph.jobs.track import RunOptions, TrackJob, run_track
from samgraph.predict.features import Embedding
from samgraph.predict.model import Model
from tests import tolerances
from tests.cli.running import Outcome
from tests.golden import scenes
from tests.jobs.batch.workers import InlineWorkers
from tests.predict.models import small_model

Run = Callable[..., Outcome]
BOX = (17.0, 27.0, 63.0, 73.0)
CSV = "path,x0,y0,x1,y1,label\na.png,17,27,63,73,cup\nb.png,17,27,63,73,cup\nbad.png,1,2,3,4,cup\n"


@pytest.fixture
def inline(monkeypatch: pytest.MonkeyPatch) -> Model:
    """Workers in this process, with the model that is returned."""
    model = Model(small_model(14))

    def workers(settings: WorkerSettings) -> InlineWorkers:
        return InlineWorkers(lambda number: TaskRunner(model, settings.task))

    monkeypatch.setattr(running, "LocalWorkers", workers)
    return model


@pytest.mark.usefixtures("folder")
def test_segment_gives_the_masks_of_prompts_and_goes_on(samgraph: Run, inline: Model) -> None:
    Path("list.csv").write_text(CSV)
    command = ("batch", "list.csv", "--task", "segment", "-o", "out", "--batch-size", 2)

    done = samgraph(*command)

    assert done.code == 3, done.err
    assert "2 done in out" in done.err
    assert "1 failed, listed in out/failures.jsonl:\n  1 unusable image" in done.err
    images = read_coco("out/masks-00000.json")
    assert [image.name for image in images] == ["a.png", "b.png"]
    for image in images:
        (segment,) = image.segments
        expected = inline.image(image.name).predict(box=BOX, multimask=False).masks[0]
        assert (segment.mask != expected).mean() < tolerances.BATCHED_PIXELS
        assert segment.label == "cup"
    again = samgraph(*command, "--json")
    assert json.loads(again.text) == {
        "output": "out", "inputs": 3, "done": 2, "failed": {"unusable image": 1}, "damaged": 0,
        "skipped": 3, "without_prompt": 0, "inputs_per_second": None,
    }  # fmt: skip
    assert again.code == 3


@pytest.mark.usefixtures("folder", "inline")
def test_images_without_a_prompt_are_left_out(samgraph: Run) -> None:
    Path("boxes.csv").write_text("path,box\nb.png,17 27 63 73\n")

    done = samgraph(
        "batch", "a.png", "b.png", "--prompts", "boxes.csv", "--task", "segment", "-o", "out",
        "--format", "jsonl",
    )  # fmt: skip

    assert done.code == 0, done.err
    assert "1 without a prompt, left out" in done.err
    lines = Path("out/masks-00000.jsonl").read_text().splitlines()
    assert [json.loads(line)["path"] for line in lines] == ["b.png"]


@pytest.mark.usefixtures("folder")
def test_everything_has_the_automatic_masks(samgraph: Run, inline: Model) -> None:
    grid = ("--points-per-side", 3, "--iou", 0, "--stability", 0)

    done = samgraph("batch", "a.png", "--task", "everything", "-o", "out", *grid)

    assert done.code == 0, done.err
    expected = inline.everything(
        "a.png", points_per_side=3, pred_iou_thresh=0.0, stability_score_thresh=0.0
    )
    (image,) = read_coco("out/masks-00000.json")
    assert [segment.rle for segment in image.segments] == [segment.rle for segment in expected]
    other = samgraph("batch", "a.png", "--task", "everything", "-o", "out", "--points-per-side", 4)
    assert other.code == 2
    assert "another run" in other.err


@pytest.mark.usefixtures("folder")
def test_embed_writes_embeddings_and_an_index(samgraph: Run, inline: Model) -> None:
    done = samgraph("batch", "a.png", "b.png", "--task", "embed", "-o", "out")

    assert done.code == 0, done.err
    lines = Path("out/index-00000.jsonl").read_text().splitlines()
    entries = {entry["path"]: entry["file"] for entry in map(json.loads, lines)}
    saved = Embedding.load(Path("out", entries["b.png"]))
    image = inline.image("b.png")
    assert saved.name == "b.png"
    for name, feature in image.embedding.features.maps.items():
        assert np.array_equal(np.asarray(saved.features.maps[name]), np.asarray(feature))


@pytest.mark.skipif(importlib.util.find_spec("fsspec") is None, reason="fsspec is missing")
@pytest.mark.usefixtures("inline")
def test_images_are_read_from_addresses_and_results_go_there(samgraph: Run, folder: Path) -> None:
    import fsspec

    system = fsspec.filesystem("memory")
    system.pipe("/photos/a.png", (folder / "a.png").read_bytes())

    done = samgraph(
        "batch", "memory://photos", "--task", "embed", "-o", "out", "--to", "memory://results",
    )  # fmt: skip

    assert done.code == 0, done.err
    entry = json.loads(system.cat("/results/index-00000.jsonl"))
    assert entry["path"] == "memory:///photos/a.png"
    (folder / "saved").write_bytes(system.cat(f"/results/{entry['file']}"))
    assert Embedding.load(folder / "saved").size_hw == scenes.frame(0).shape[:2]
    assert sorted(path.name for path in Path("out").iterdir()) == ["journal.jsonl", "run.json"]


def test_track_writes_a_folder_per_video(samgraph: Run, folder: Path, inline: Model) -> None:
    for index in range(3):
        path = folder / "clips" / "clip" / f"{index}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(scenes.frame(index)).save(path)
    rows = [{"path": "clips/clip", "prompts": [{"box": BOX, "object": "cup", "frame": 0}]}]
    Path("clips.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    done = samgraph("batch", "clips.jsonl", "--task", "track", "-o", "out")

    assert done.code == 0, done.err
    entry = json.loads(Path("out/index-00000.jsonl").read_text())
    assert (entry["path"], entry["frames"], entry["skipped"]) == ("clips/clip", 3, 0)
    single = TrackJob("clips/clip", {("cup", 0): FramePrompt(box=BOX)}, folder / "single")
    run_track(single, lambda: inline, RunOptions(progress=False))
    for index in range(3):
        made = Path("out", entry["folder"], f"{index}.png")
        assert made.read_bytes() == Path("single", f"{index}.png").read_bytes()


def write_clip(path: Path, damaged: int | None = None) -> None:
    """A video as a folder of three images, of which one may be damaged."""
    for index in range(3):
        path.mkdir(parents=True, exist_ok=True)
        Image.fromarray(scenes.frame(index)).save(path / f"{index}.png")
        if index == damaged:
            (path / f"{index}.png").write_bytes(b"damaged")


@pytest.mark.usefixtures("inline")
def test_everything_is_tracked_where_nothing_was_prompted(samgraph: Run, folder: Path) -> None:
    write_clip(folder / "clips" / "one")
    write_clip(folder / "clips" / "deep" / "two")
    Path("boxes.jsonl").write_text(json.dumps({"path": "deep/two", "box": BOX}) + "\n")
    given = (
        "batch", "clips", "--prompts", "boxes.jsonl", "--task", "track", "--everything",
        "--every", 2, "--iou", 0, "--stability", 0, "--format", "mot", "-o", "out",
    )  # fmt: skip

    done = samgraph(*given, "--policy", "motion-aware")

    assert done.code == 0, done.err
    lines = Path("out/index-00000.jsonl").read_text().splitlines()
    runs = {entry["path"]: entry["folder"] for entry in map(json.loads, lines)}
    assert set(runs) == {"one", "deep/two"}
    said = {
        name: json.loads(Path("out", run, "run.json").read_text()) for name, run in runs.items()
    }
    assert said["one"]["everything"]["every"] == 2
    assert said["one"]["everything"]["masks"]["points_per_side"] == 16
    assert "prompts" in said["deep/two"]
    assert {one["options"]["policy"] for one in said.values()} == {"motion-aware"}
    again = samgraph(*given)
    assert again.code == 2
    assert "another run" in again.err


@pytest.mark.usefixtures("inline")
def test_a_video_with_damage_is_counted(samgraph: Run, folder: Path) -> None:
    write_clip(folder / "clips" / "one", damaged=1)
    Path("boxes.jsonl").write_text(json.dumps({"path": "one", "box": BOX}) + "\n")
    given = ("batch", "clips", "--prompts", "boxes.jsonl", "--task", "track")

    strict = samgraph(*given, "-o", "strict")
    skipping = samgraph(*given, "-o", "out", "--on-damage", "skip")
    again = samgraph(*given, "-o", "out", "--on-damage", "skip", "--json")

    assert strict.code == 2, "all inputs failed"
    assert skipping.code == 3, skipping.err
    assert "1 with damage" in skipping.err
    assert (again.code, json.loads(again.text)["damaged"]) == (3, 1)


@pytest.mark.usefixtures("folder")
def test_a_process_does_the_same(samgraph: Run) -> None:
    Path("list.csv").write_text(CSV.replace("bad.png", "gone.png"))

    done = samgraph(
        "batch", "list.csv", "--task", "segment", "-o", "out", "--workers", 1, "--threads", 2,
        "--quiet", "--device", "cpu",
    )  # fmt: skip

    assert done.code == 3, done.err
    assert done.err.count("\n") == 2
    assert len(read_coco("out/masks-00000.json")) == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--task", "segment", "--format", "davis"), "does not write `davis`"),
        (("--task", "embed", "--format", "coco"), "does not write `coco`"),
        (("--task", "segment", "--format", "coco", "--format", "jsonl"), "one --format"),
        (("--task", "track", "--to", "s3://x"), "go to a folder"),
        (("--task", "dance"), "dance"),
        (("--task", "embed", "--gpus-per-worker", "0.5"), "are for --ray"),
        (("--task", "segment"), "no input has a prompt"),
        (("--task", "segment", "--everything"), "--everything is for videos"),
        (("--task", "track", "--every", "5"), "add --everything"),
        ((), "--task"),
    ],
)
@pytest.mark.usefixtures("folder", "inline")
def test_options_that_make_no_sense(
    arguments: tuple[str, ...], message: str, samgraph: Run
) -> None:
    done = samgraph("batch", "a.png", "-o", "out", *arguments)

    assert done.code == 2
    assert message in done.err
    assert not Path("out").exists()


@pytest.mark.usefixtures("folder", "inline")
def test_all_inputs_failing_is_bad_input(samgraph: Run) -> None:
    done = samgraph("batch", "bad.png", "--task", "everything", "-o", "out")

    assert done.code == 2
    assert "1 failed" in done.err


def test_a_file_system_that_stumbles_may_be_asked_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An input/output error passes; a file that is missing, or no image, does not."""
    runner = TaskRunner(Model(small_model(14)), TaskOptions("embed", str(folder / "out")))
    inputs = [Input(str(folder / name), name) for name in ("bad.png", "gone.png")]
    plain = runner.run(inputs)
    assert [isinstance(one, Failure) and one.may_pass for one in plain] == [False, False]

    from samgraph.media.image import opening

    def stumbling(path: Any) -> Any:
        raise OSError(5, "Input/output error", path)

    monkeypatch.setattr(opening, "open_regular", stumbling)
    (failed,) = runner.run(inputs[:1])

    assert isinstance(failed, Failure)
    assert (failed.reason, failed.may_pass) == ("unusable image", True)
    shutil.rmtree(folder / "out", ignore_errors=True)

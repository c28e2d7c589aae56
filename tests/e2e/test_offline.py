"""With no network at all: load, click, and the command line with no model named."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from samgraph.evaluate.clicks import first_click
from samgraph.evaluate.davis import region_similarity
from samgraph.media.image.reading import read_label_image
from tests.checkpoint.built_in import needs_built_in, put_in_place
from tests.cli.running import Outcome, call
from tests.e2e.scenes import save, scene
from tests.golden import scenes as small_scenes

ROOT = Path(__file__).resolve().parents[2]
Command = Callable[..., Outcome]

# Runs in a new process: whatever opens a socket ends it.
CLICK = """
import json, sys
def guard(event, arguments):
    if event.startswith("socket."):
        raise SystemExit(f"opened a socket: {event}")
sys.addaudithook(guard)
import samgraph
result = samgraph.load(threads=2).image(sys.argv[1]).predict(points=[json.loads(sys.argv[2])])
result.save(sys.argv[3])
"""


@needs_built_in
def test_load_and_click_open_no_socket(tmp_path: Path) -> None:
    picture, masks = scene(0)
    Image.fromarray(picture).save(tmp_path / "scene.png")
    given = (tmp_path / "scene.png", json.dumps(first_click(masks[0]).point), tmp_path / "mask.png")

    child = subprocess.run(
        [sys.executable, "-c", CLICK, *map(str, given)],
        capture_output=True,
        text=True,
        timeout=240,
        env={
            "PYTHONPATH": str(ROOT / "src"),
            "PATH": "/usr/bin:/bin",
            "SAMGRAPH_CACHE": str(tmp_path / "cache"),
        },
    )

    assert child.returncode == 0, child.stderr
    found = read_label_image(tmp_path / "mask.png") > 0
    assert region_similarity(masks[0], found) >= 0.85


@needs_built_in
def test_the_first_command_of_the_readme_cuts_out_a_shape(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    picture, masks = scene(2)
    monkeypatch.chdir(tmp_path)
    Image.fromarray(picture).save("photo.png")
    x, y = first_click(masks[0]).point

    arguments = ["segment", "photo.png", "--point", f"{x},{y}", "-o", "cutout.png"]
    done = call(monkeypatch, [*arguments, "--format", "cutout"])

    assert done.code == 0, done.err
    with Image.open("cutout.png") as cut:
        alpha = np.array(cut.getchannel("A"))
    assert region_similarity(masks[0], alpha > 0) >= 0.85


@pytest.fixture
def samgraph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    """The command line, in an empty folder, with a small model in the built-in one's place."""
    (tmp_path / "package").mkdir()
    put_in_place(tmp_path / "package", monkeypatch)
    monkeypatch.setenv("SAMGRAPH_OFFLINE", "1")
    monkeypatch.chdir(tmp_path)
    Image.fromarray(small_scenes.frame(0)).save("photo.jpg")
    return lambda *arguments: call(monkeypatch, arguments)


def test_segment_needs_no_model_named(samgraph: Command) -> None:
    done = samgraph("segment", "photo.jpg", "--point", "40,50", "-o", "cutout.png")

    assert done.code == 0, done.err
    assert read_label_image("cutout.png").shape == (small_scenes.HEIGHT, small_scenes.WIDTH)


def test_everything_needs_no_model_named(samgraph: Command) -> None:
    done = samgraph("everything", "photo.jpg", "--points-per-side", 2, "--quiet", "-o", "all.json")

    assert done.code == 0, done.err
    assert json.loads(Path("all.json").read_text())["images"][0]["file_name"] == "photo.jpg"


def test_track_needs_no_model_named(samgraph: Command) -> None:
    save([small_scenes.frame(number) for number in range(2)], Path("frames"))

    done = samgraph("track", "frames", "--point", "40,50", "-o", "out", "--quiet")

    assert done.code == 0, done.err
    assert json.loads(Path("out/run.json").read_text())["ending"]["written"] == 2


def test_eval_needs_no_model_named(samgraph: Command) -> None:
    for name in ("images", "masks"):
        Path("set", name).mkdir(parents=True)
    Path("photo.jpg").rename("set/images/a.jpg")
    labels = np.zeros((small_scenes.HEIGHT, small_scenes.WIDTH), np.uint8)
    labels[27:73, 17:63] = 1
    Image.fromarray(labels).save("set/masks/a.png")

    done = samgraph("eval", "images", "set", "--json")

    assert done.code == 0, done.err
    assert json.loads(done.out)["mean"]["objects"] == 1


def test_a_missing_file_is_bad_input_that_says_to_reinstall(
    samgraph: Command, tmp_path: Path
) -> None:
    (tmp_path / "package" / "samgraph-nano.safetensors").unlink()

    done = samgraph("segment", "photo.jpg", "--point", "40,50")

    assert done.code == 2
    assert done.err.startswith("error: the built-in model is missing")
    assert "hint: reinstall samgraph" in done.err

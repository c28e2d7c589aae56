"""Files may be called anything: names go through untouched, and are shown escaped."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from samgraph.formats import read_coco
from tests.cli.running import Outcome, call
from tests.golden import scenes
from tests.media.video_making import make_video

Run = Callable[..., Outcome]

NAMES = {
    "not UTF-8": os.fsdecode(b"caf\xe9 \xff\xfe"),
    "control": "a\x1b[2J\x07\r\x7f\x9bb",
    "lines": "a\nerror: all is lost\n",
    "markup": "[red][bold]x]",
    "bidi": "a\u202eb\u200b",
    "plain": "plain",
    "foreign": "画像 é",
}
FORMATS = ("png", "cutout", "overlay", "coco", "labelme", "polygons", "sam", "yolo")


@pytest.fixture(params=sorted(NAMES))
def name(request: pytest.FixtureRequest) -> str:
    return NAMES[request.param]


def assert_clean(outcome: Outcome, allowed: int = 0) -> None:
    """The code is right, and nothing but lines of printable text was shown."""
    assert outcome.code == allowed, outcome.err
    for text in (outcome.err, outcome.out.decode("utf-8")):
        assert all(line.isprintable() for line in text.split("\n")), text
    assert "bug" not in outcome.err
    assert not outcome.err.startswith("error: all is lost")


@pytest.mark.parametrize("kind", FORMATS)
def test_a_file_of_any_name_is_segmented(kind: str, name: str, folder: Path, samgraph: Run) -> None:
    shutil.copy("a.png", f"{name}.png")

    done = samgraph(
        "segment", f"{name}.png", "b.png", "--point", "40,50", "-o", "out/", "--format", kind
    )

    assert_clean(done)
    written = os.listdir("out")
    if kind in ("coco", "polygons", "sam"):
        text = Path("out", written[0]).read_text(encoding="utf-8")
        assert json.dumps(f"{name}.png")[1:-1] in json.dumps(json.loads(text))
    else:
        lists = {"classes.txt"} if kind == "yolo" else set()
        assert {Path(file).stem for file in {*written} - lists} == {name, "b"}


def test_a_name_comes_back_from_annotations(name: str, folder: Path, samgraph: Run) -> None:
    shutil.copy("a.png", f"{name}.png")

    samgraph("segment", f"{name}.png", "--point", "40,50", "-o", "a.json", "--format", "coco")

    assert [image.name for image in read_coco("a.json")] == [f"{name}.png"]


def test_a_bad_file_of_any_name_does_not_cost_the_others(
    name: str, folder: Path, samgraph: Run
) -> None:
    Path(f"{name}.png").write_text("no image")
    given = ("a.png", f"{name}.png", "b.png", "--point", "40,50", "-o", "out/")

    assert_clean(samgraph("segment", *given, "--format", "coco"), allowed=3)
    assert len(read_coco("out/annotations.json")) == 2

    done = samgraph("segment", *given, "--json")
    assert_clean(done, allowed=3)
    summary = json.loads(done.text)
    assert [entry["image"] for entry in summary["failed"]] == [f"{name}.png"]
    assert len(summary["images"]) == 2

    assert_clean(samgraph("segment", f"{name}", "--point", "1,1"), allowed=2)
    assert_clean(samgraph("everything", f"{name}", "--quiet"), allowed=2)


def test_standard_output_of_any_name(name: str, folder: Path, samgraph: Run) -> None:
    shutil.copy("a.png", f"{name}.png")

    done = samgraph("segment", f"{name}.png", "--point", "40,50", "-o", "-", "--format", "coco")

    assert done.code == 0
    assert json.loads(done.text)["images"][0]["file_name"] == f"{name}.png"


@pytest.mark.parametrize("kind", ["davis", "coco", "jsonl"])
def test_a_folder_of_any_name_is_tracked_into_one(
    kind: str, name: str, folder: Path, samgraph: Run
) -> None:
    Path(name).mkdir()
    for index in range(3):
        Image.fromarray(scenes.frame(index)).save(Path(name, f"{index}{name}.png"))
    obj = name.replace(":", "")
    given = ("track", name, "--box", f"17,27,63,73@0:{obj}", "--format", kind, "-o", f"{name} out")

    assert_clean(samgraph(*given, "--end", "1"))
    assert_clean(samgraph(*given), allowed=2)  # another run is there
    assert_clean(samgraph(*given, "--end", "1", "--resume"))

    record = json.loads(Path(f"{name} out", "run.json").read_text(encoding="utf-8"))
    assert record["video"]["name"] == name
    assert record["objects"] == {obj: 1}


@pytest.mark.parametrize("kind", ["davis", "overlay"])
def test_a_video_file_of_any_name_is_tracked(
    kind: str, name: str, folder: Path, samgraph: Run
) -> None:
    make_video(folder / "plain.mp4", 3)
    (folder / "plain.mp4").rename(folder / f"{name}.mp4")

    done = samgraph(
        "track", f"{name}.mp4", "--point", "20,20", "--format", kind, "-o", f"{name} out"
    )

    assert_clean(done)


def test_a_model_a_mask_or_a_prompt_of_any_name_is_refused_cleanly(
    name: str, folder: Path, samgraph: Run
) -> None:
    for given in (
        ("segment", "a.png", "--point", name),
        ("segment", "a.png", "--point", "1,1", "--mask", name),
        ("segment", "a.png", "--point", "1,1", "-o", f"nowhere/{name}/{name}.png"),
        ("segment", "a.png", "--point", "1,1", "--format", name),
        ("segment", "a.png", "--point", "1,1", "--device", name),
        ("track", "a.png", "--box", f"1,1,2,2@{name}", "-o", "out"),
        ("eval", "davis", name),
        ("eval", "images", name),
        (name,),
    ):
        assert_clean(samgraph(*given), allowed=2)


IMPOSSIBLE = {"lone surrogate": "\ud800", "long": "x" * 5000, "pattern": "\ud800*/[a]"}


@pytest.mark.parametrize("name", sorted(IMPOSSIBLE))
@pytest.mark.parametrize(
    "line",
    [
        "segment NAME --point 1,1",
        "segment a.png --point 1,1 -o NAME",
        "segment a.png --mask NAME",
        "everything NAME",
        "track NAME --point 1,1 -o out",
        "track a.mp4 --point 1,1 -o NAME",
        "track a.mp4 --mask NAME -o out",
        "eval davis NAME",
        "eval images NAME",
        "graph mask_prompt --svg NAME",
        "graph mask_prompt --profile NAME.toml",
        "segment a.png --point 1,1 --model NAME.pt",
    ],
)
def test_a_name_that_no_file_has_is_bad_input(
    line: str, name: str, folder: Path, samgraph: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = [word.replace("NAME", IMPOSSIBLE[name]) for word in line.split()]
    needs_model = words[0] in ("segment", "everything", "track") and "--model" not in words

    done = samgraph(*words) if needs_model else call(monkeypatch, words)

    assert_clean(done, allowed=done.code)
    assert done.code in (2, 3)

"""The demo of `docs/demo.py`: its report is complete, and its commands are true."""

import os
import re
import shlex
from html import unescape
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from PIL import Image

import samgraph
from samgraph.cli.options import ModelChoice
from tests.checkpoint.built_in import needs_built_in, put_in_place
from tests.cli.running import call

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def demo(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    import demo  # type: ignore[import-not-found]  # a script, found by its folder

    module: ModuleType = demo
    return module


def test_the_clip_is_known_to_the_pixel(demo: ModuleType) -> None:
    clip = demo.make_clip()

    assert len(clip.frames) == len(clip.masks) == 36
    assert min(int(mask.sum()) for mask in clip.masks) > 3000
    copied = [clip.masks[0]] * len(clip.masks)
    assert demo.mean_overlap(clip, copied) < 0.25  # it moves
    assert demo.mean_overlap(clip, clip.masks) == 1
    assert demo.mean_overlap(clip, [np.zeros_like(mask) for mask in clip.masks]) == 0


def test_the_report_has_everything_in_it_and_its_commands_run(
    demo: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a small model of random weights in the built-in one's place, and a shorter clip."""
    (tmp_path / "package").mkdir()
    put_in_place(tmp_path / "package", monkeypatch)
    clip = demo.make_clip()
    short: Any = type(clip)(clip.frames[:3], clip.masks[:3])
    monkeypatch.setattr(demo, "make_clip", lambda: short)
    model = samgraph.load(threads=2)

    def the_same(choice: ModelChoice) -> samgraph.Model:
        assert choice.model == "samgraph-nano"
        return model

    monkeypatch.setattr(ModelChoice, "load", the_same)

    report, steps = demo.run(model, tmp_path, points_per_side=2)

    page = report.read_text(encoding="utf-8")
    assert report == tmp_path / "demo" / "index.html"
    assert page.count("<section>") == len(steps) == 4
    assert re.findall(r'(?:src|href)="(?!data:image/)', page) == []
    assert page.count("data:image/") == 5
    with Image.open(tmp_path / "demo" / "track.webp") as film:
        assert film.n_frames == 3  # type: ignore[attr-defined]  # of images that move
    with Image.open(tmp_path / "demo" / "cat.png") as cut:
        assert cut.mode == "RGBA"
    monkeypatch.chdir(tmp_path)
    (tmp_path / "docs").symlink_to(ROOT / "docs")
    for step in steps:
        assert unescape(page).count(step.shell) == 1
        done = call(monkeypatch, shlex.split(step.shell.replace("\\\n", ""))[1:])
        assert done.code == 0, done.err


@needs_built_in
def test_the_demo_shows_real_objects(
    demo: ModuleType, model: samgraph.Model, tmp_path: Path
) -> None:
    _, steps = demo.run(model, tmp_path)

    _, cup, everything, tracked = steps
    assert cup.figures["IoU"] >= 0.85
    assert int(re.findall(r"(\d+) masks stay", everything.sentence)[0]) >= 5
    assert tracked.figures["IoU"] >= 0.85


def test_a_demo_that_cannot_write_says_so(
    demo: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr("sys.argv", ["demo.py", "--out", str(tmp_path / "file")])
    monkeypatch.setattr(demo.samgraph, "load", lambda: None)

    with pytest.raises(SystemExit, match=f"the demo cannot write to {tmp_path}/file: "):
        demo.main()


def test_a_demo_whose_reader_leaves_ends_quietly(
    demo: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    monkeypatch.setattr("sys.argv", ["demo.py", "--out", str(tmp_path)])
    monkeypatch.setattr(demo.samgraph, "load", lambda: None)
    with os.fdopen(writer, "w") as stream:
        monkeypatch.setattr("sys.stdout", stream)
        demo.main()

    assert not list(tmp_path.iterdir())

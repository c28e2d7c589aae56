"""Programs that read like public code for the reference, run cell by cell; torch only if imported.

A cell begins with `# %%`, as editors have it.
"""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.golden import scenes

FOLDER = Path(__file__).parent / "programs"
FRAMES = 5


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with an image, a video and an annotation, where programs run."""
    (tmp_path / "images").mkdir()
    (tmp_path / "videos" / "scene").mkdir(parents=True)
    Image.fromarray(scenes.frame(0)).save(tmp_path / "images" / "scene.png")
    scenes.write_frames(tmp_path / "videos" / "scene", FRAMES)
    y, x = np.mgrid[: scenes.HEIGHT, : scenes.WIDTH]
    labels = np.zeros((scenes.HEIGHT, scenes.WIDTH), np.uint8)
    labels[(x - 40) ** 2 + (y - 50) ** 2 < 22**2] = 1
    labels[(abs(x - 118) < 17) & (abs(y - 84) < 17)] = 2
    Image.fromarray(labels).save(tmp_path / "images" / "first.png")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def cells_of(name: str) -> list[str]:
    text = (FOLDER / f"{name}.py").read_text(encoding="utf-8")
    return text.split("# %%")[1:]


def run_cells(name: str) -> dict[str, Any]:
    """Run every cell, and say which one fails."""
    namespace: dict[str, Any] = {"__name__": name}
    for number, cell in enumerate(cells_of(name), 1):
        try:
            exec(compile(f"#{cell}", f"{name}, cell {number}", "exec"), namespace)
        except Exception as error:
            error.add_note(f"cell {number} of {name}:{cell}")
            raise
    return namespace


def test_every_cell_of_the_image_notebook_runs(folder: Path) -> None:
    found = run_cells("image_notebook")

    (score,) = found["scores"][:1]
    assert len(cells_of("image_notebook")) == 18
    assert score > 0.5
    disc = found["best_masks"][0][0] > 0
    assert disc[50, 40]
    assert not disc[5, 150]


def test_every_cell_of_the_generator_notebook_runs(folder: Path) -> None:
    found = run_cells("generator_notebook")

    assert len(found["masks"]) > 3
    assert found["overlay"].shape == (120, 160, 4)


def test_every_cell_of_the_video_notebook_runs(folder: Path) -> None:
    pytest.importorskip("torch")

    found = run_cells("video_notebook")

    assert len(cells_of("video_notebook")) == 26
    assert len(found["video_segments"]) == FRAMES
    for t, masks in found["video_segments"].items():
        assert masks[2][0, 50 + t * t // 3, 40 + 9 * t] or 84 <= 40 + 9 * t < 92
        assert masks[3][0, 84 - 6 * t, 118]


@pytest.mark.parametrize("one_by_one", [False, True])
def test_objects_of_a_first_frame_are_tracked(folder: Path, one_by_one: bool) -> None:
    pytest.importorskip("torch")
    spec = importlib.util.spec_from_file_location("vos", FOLDER / "vos_inference.py")
    assert spec is not None
    assert spec.loader is not None
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)

    program.main("videos/scene", "images/first.png", "out", one_by_one)

    written = sorted(os.listdir(folder / "out"))
    assert written == [f"{t:05d}.png" for t in range(FRAMES)]
    for t in (0, FRAMES - 1):
        labels = np.array(Image.open(folder / "out" / f"{t:05d}.png"))
        assert labels[84 - 6 * t, 118] == 2
        assert labels[50 + t * t // 3, 40 + 9 * t - 10] == 1


INSTALLED = """
import sys
sys.modules["torch"] = None
import samgraph.compat
samgraph.compat.install()
exec(compile(open(sys.argv[1]).read().replace("samgraph.compat.", "sam2."), "program", "exec"))
assert sys.modules["sam2.build_sam"].build_sam2 is build_sam2
print("torch" in {name for name, module in sys.modules.items() if module})
"""


def test_a_program_that_imports_sam2_runs_without_torch(folder: Path) -> None:
    child = subprocess.run(
        [sys.executable, "-W", "error", "-c", INSTALLED, str(FOLDER / "image_notebook.py")],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
        check=False,
    )

    assert child.returncode == 0, child.stderr
    assert child.stdout.splitlines()[-1] == "False"

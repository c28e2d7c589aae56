"""The installed wheel, away from the repository: import, click, track, commands, licence and card.

Run by `./dev smoke` with the Python of an empty environment; needs nothing but the wheel.
"""

import subprocess
import sys
import tempfile
from importlib import metadata, resources
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

import samgraph

CENTER, RADIUS, SIDE = 120, 60, 256


def picture(shift: int = 0) -> Image.Image:
    """A bright disc on a dark ground."""
    image = Image.new("RGB", (SIDE, SIDE), (40, 60, 90))
    corners = (CENTER - RADIUS + shift, CENTER - RADIUS, CENTER + RADIUS + shift, CENTER + RADIUS)
    ImageDraw.Draw(image).ellipse(corners, fill=(240, 180, 60))
    return image


def disc() -> np.ndarray:
    y, x = np.mgrid[:SIDE, :SIDE]
    return np.asarray((x - CENTER) ** 2 + (y - CENTER) ** 2 <= RADIUS**2)


def overlap(one: np.ndarray, other: np.ndarray) -> float:
    return float((one & other).sum() / max(1, (one | other).sum()))


def check_package() -> None:
    assert Path(samgraph.__file__).is_relative_to(Path(sys.prefix)), samgraph.__file__
    about = metadata.metadata("samgraph")
    assert about["Version"] == samgraph.__version__
    assert about["License-Expression"] == "Apache-2.0"
    files = [str(file) for file in metadata.files("samgraph") or ()]
    assert any(name.endswith("licenses/LICENSE") for name in files), "no licence"
    card = resources.files("samgraph.checkpoint.builtin") / "MODEL_CARD.md"
    assert card.read_text(encoding="utf-8").startswith("# samgraph-nano")
    assert any(name.endswith("py.typed") for name in files)


def check_library(folder: Path) -> None:
    model = samgraph.load()
    result = model.image(picture()).predict(box=(55, 55, 185, 185), multimask=False)
    assert overlap(result.masks[0], disc()) > 0.8, result
    video = model.video([np.asarray(picture(4 * i)) for i in range(3)])
    video.add(frame=0, object="disc", box=(55, 55, 185, 185))
    frames = list(video.track())
    assert len(frames) == 3
    assert overlap(frames[-1].masks[0], np.roll(disc(), 8, 1)) > 0.6
    assert video.export(folder / "out.mp4") == [folder / "out.mp4"]


def check_commands(folder: Path) -> None:
    program = Path(sys.executable).with_name("samgraph")
    (folder / "frames").mkdir()
    for i in range(2):
        picture(4 * i).save(folder / "frames" / f"f{i}.png")
    for arguments in (
        ["--version"],
        ["models"],
        ["segment", "frames/f0.png", "--box", "55,55,185,185", "-o", "mask.png"],
        ["track", "frames", "--box", "55,55,185,185", "-o", "run", "--quiet"],
        ["convert", "run/frames.jsonl", "-o", "masks.json"],
    ):
        subprocess.run([program, *arguments], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    assert (folder / "mask.png").exists()
    assert (folder / "run" / "f1.png").exists()
    assert (folder / "masks.json").exists()


if __name__ == "__main__":
    check_package()
    with tempfile.TemporaryDirectory() as folder:
        check_library(Path(folder))
        check_commands(Path(folder))
    print(f"samgraph {samgraph.__version__} works: {samgraph.load()}")

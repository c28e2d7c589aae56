"""The examples that run exported files without samgraph: Python, C, JavaScript."""

import importlib.util
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from samgraph.graph.types import Array
from samgraph.models.exporting import export_model
from samgraph.predict.video.video import open_video
from tests.golden import scenes
from tests.predict.models import tiny_model

pytest.importorskip("onnxruntime")
EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "onnx"
GRAPHS = ("image_encoder", "decode_points", "decode", "memory_encoder", "track")
CLICK = (40.0, 50.0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("onnx")
    export_model(tiny_model(), "onnx", target, only=GRAPHS)
    return target


@pytest.fixture(scope="module")
def example() -> Any:
    spec = importlib.util.spec_from_file_location("sam2_example", EXAMPLES / "sam2.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def pictures(count: int) -> list[Image.Image]:
    return [Image.fromarray(frame) for frame in scenes.frames(count)]


def overlap(one: Array, other: Array) -> float:
    """The IoU of two masks; 1 where both are empty."""
    return float((one & other).sum() / (one | other).sum()) if (one | other).any() else 1.0


def test_python_tracks_as_the_library_does(folder: Path, example: Any, tmp_path: Path) -> None:
    frames, masks = tmp_path / "frames", tmp_path / "masks"
    frames.mkdir()
    for number, picture in enumerate(pictures(4)):
        picture.save(frames / f"{number}.png")
    video = open_video(tiny_model(), scenes.frames(4), memory_precision="fp32")
    video.add(frame=0, object=1, points=[CLICK])
    expected = [result.masks[0] for result in video.track()]

    example.main(str(folder), str(frames), "40,50", str(masks))

    found = [np.asarray(Image.open(masks / f"{number}.png")) > 0 for number in range(4)]
    assert any(mask.any() for mask in expected)
    assert min(map(overlap, found, expected)) > 0.98


@pytest.fixture
def small(folder: Path, example: Any, tmp_path: Path) -> tuple[Path, Array]:
    """A picture of the model's input size, and the low-resolution mask of a click on it."""
    model = example.Sam2(folder)
    side = model.constants["image_size"]
    image = pictures(1)[0].resize((side, side))
    image.save(tmp_path / "picture.ppm")
    points = model.points([CLICK], image)
    inputs = {**model.encode(image), "points": points, "labels": np.ones((1, 1), np.int64)}
    result = model.run("decode_points", inputs)
    mask = result["masks"][0, 1 + result["ious"][0, 1:].argmax()] > 0
    return tmp_path / "picture.ppm", mask


def run_click(command: list[str], folder: Path, picture: Path) -> Array:
    """The mask that an example wrote."""
    target = picture.with_name("mask.pgm")
    arguments = [str(folder), str(picture), *map(str, CLICK), str(target)]
    child = subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=200)
    assert child.returncode == 0, child.stderr
    return np.asarray(Image.open(target)) > 0


def test_c_finds_the_same_mask(folder: Path, small: tuple[Path, Array], tmp_path: Path) -> None:
    import openvino

    compiler, package = shutil.which("cc"), Path(openvino.__file__).parent
    libraries = sorted((package / "libs").glob("libopenvino_c.so*"))
    if compiler is None or not libraries or not (package / "include").is_dir():
        pytest.skip("needs a C compiler, and OpenVINO's wheel for Linux with its headers")
    program = tmp_path / "click"
    flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", f"-I{package / 'include'}"]
    link = [str(libraries[0]), f"-Wl,-rpath,{package / 'libs'}"]
    subprocess.run(
        [compiler, *flags, str(EXAMPLES / "click.c"), "-o", str(program), *link], check=True
    )

    found = run_click([str(program)], folder, small[0])

    assert overlap(found, small[1]) > 0.98


def test_javascript_finds_the_same_mask(folder: Path, small: tuple[Path, Array]) -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("needs Node")
    probe = [node, "-e", "require.resolve('onnxruntime-node')"]
    if subprocess.run(probe, cwd=EXAMPLES, capture_output=True).returncode:
        pytest.skip("needs `npm install onnxruntime-node`, or its folder in NODE_PATH")

    found = run_click([node, str(EXAMPLES / "click.cjs")], folder, small[0])

    assert overlap(found, small[1]) > 0.98

"""The examples that run exported files without samgraph: Python, C, JavaScript."""

import importlib.util
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from samgraph.graph.types import Array
from samgraph.models.exporting import export_model
from samgraph.models.family import SegmentationModel
from samgraph.models.loading import load_model
from samgraph.predict.model import Model
from samgraph.predict.video.video import open_video
from tests.golden import scenes
from tests.models.sisters import small_sister
from tests.predict.models import tiny_model

pytest.importorskip("onnxruntime")
EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "onnx"
GRAPHS = (
    "image_encoder", "decode_points", "decode", "memory_encoder", "memory_attention", "track",
)  # fmt: skip
CLICK = (40.0, 50.0)
SCORE_BIAS = "sam_mask_decoder.pred_obj_score_head.layers.2.bias"
PIXELS = 0.002  # of a frame may differ, where a logit is nearly zero


@cache
def model() -> SegmentationModel:
    """The small model whose objects are hardly ever absent: there is a mask on every frame."""
    whole = tiny_model()
    weights = {name: np.array(array) for name, array in whole.weights.items()}
    weights[SCORE_BIAS] += 20
    return load_model(weights, config=whole.config, device="cpu", threads=2)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("onnx")
    export_model(model(), "onnx", target, only=GRAPHS)
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


def test_python_clicks_as_the_library_does(folder: Path, example: Any, tmp_path: Path) -> None:
    picture = pictures(1)[0]
    picture.save(tmp_path / "picture.png")
    image = Model(model()).image(picture)
    for clicks, points, labels in (
        (["40,50"], [(40, 50)], [1]),
        (["40,50", "118,84,0"], [(40, 50), (118, 84)], [1, 0]),
    ):
        example.main(
            str(folder), str(tmp_path / "picture.png"), str(tmp_path / "mask.png"), *clicks
        )

        found = np.asarray(Image.open(tmp_path / "mask.png")) > 0
        expected = image.predict(points=points, labels=labels).mask
        assert 0 < expected.mean() < 1
        assert overlap(found, expected) > 0.99


def test_python_tracks_and_corrects_as_the_library_does(folder: Path, example: Any) -> None:
    """Two objects, one that comes later, corrections, and a bank that fills beyond its end."""
    found = tracked_by_the_example(folder, example, FRAMES)

    assert_alike(found, tracked_by_the_library(model(), FRAMES))


@pytest.mark.parametrize("name", ["small edgetam", "small efficienttam", "small efficienttam 1"])
def test_python_tracks_with_sister_models(name: str, example: Any, tmp_path: Path) -> None:
    sister = small_sister(name).core
    export_model(sister, "onnx", tmp_path / "onnx")

    found = tracked_by_the_example(tmp_path / "onnx", example, 6)

    assert_alike(found, tracked_by_the_library(sister, 6))


def test_what_is_no_click_is_refused_in_a_sentence(folder: Path, example: Any) -> None:
    with pytest.raises(SystemExit, match="`40;50` is no click"):
        example.main(str(folder), "photo.jpg", "mask.png", "40;50")


# Clicks of the example: object, position, label, frame.
CLICKS = ("40,50", "2:118,84", "3:20,20@3", "80,60,0@5", "2:118,60@9", "2:118,70,1@9")
FRAMES = 12


def tracked_by_the_example(folder: Path, example: Any, count: int) -> list[dict[int, Array]]:
    """Masks by object, frame by frame."""
    tracker = example.Tracker(example.Sam2(folder), count)
    clicks = example.read_clicks(list(CLICKS))
    found = []
    for index, picture in enumerate(pictures(count)):
        masks = tracker.step(picture)
        for frame, name, x, y, label in clicks:
            if frame == index:
                masks[name] = tracker.click(name, x, y, label)
        found.append(masks)
    return found


def tracked_by_the_library(tracker: SegmentationModel, count: int) -> list[dict[int, Array]]:
    """The same prompts, each given when its frame has been tracked."""
    video = open_video(tracker, scenes.frames(count), memory_precision="fp32")
    found: list[dict[int, Array]] = [{} for _ in range(count)]

    def take(results: Any) -> None:
        for result in results:
            found[result.index] |= dict(zip(result.objects, result.masks, strict=True))

    for frame, name, x, y, label in (
        (0, 1, 40, 50, 1), (0, 2, 118, 84, 1), (3, 3, 20, 20, 1), (5, 1, 80, 60, 0),
        (9, 2, 118, 60, 1), (9, 2, 118, 70, 1),
    ):  # fmt: skip
        if frame >= count:
            break
        if frame and frame >= video.position:
            take(video.track(start=video.position, end=frame))
        take([video.add(frame=frame, object=name, points=[(x, y)], labels=[label])])
    if video.position < count:
        take(video.track(start=video.position))
    return found


def assert_alike(found: list[dict[int, Array]], expected: list[dict[int, Array]]) -> None:
    """The same objects on every frame, with the same masks but for single pixels."""
    assert [sorted(masks) for masks in found] == [sorted(masks) for masks in expected]
    shares = [mask.mean() for masks in expected for mask in masks.values()]
    assert sum(0 < share < 1 for share in shares) > 0.7 * len(shares)
    for masks, wanted in zip(found, expected, strict=True):
        for name, mask in wanted.items():
            assert (masks[name] != mask).mean() < PIXELS


@pytest.fixture
def small(folder: Path, example: Any, tmp_path: Path) -> tuple[Path, Array]:
    """A picture of the model's input size, and the low-resolution mask of a click on it."""
    files = example.Sam2(folder)
    side = files.constants["image_size"]
    image = pictures(1)[0].resize((side, side))
    image.save(tmp_path / "picture.ppm")
    points = files.points([CLICK], image)
    inputs = {**files.encode(image), "points": points, "labels": np.ones((1, 1), np.int64)}
    result = files.run("decode_points", inputs)
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
    flags = ["-std=c11", "-Wall", "-Wextra", f"-I{package / 'include'}"]
    link = [str(libraries[0]), f"-Wl,-rpath,{package / 'libs'}"]
    subprocess.run(
        [compiler, *flags, str(EXAMPLES / "click.c"), "-o", str(program), *link], check=True
    )

    found = run_click([str(program)], folder, small[0])

    assert overlap(found, small[1]) > 0.98


def test_c_plus_plus_finds_the_same_mask(
    folder: Path, small: tuple[Path, Array], tmp_path: Path
) -> None:
    """By the library of ONNX Runtime's wheel; the headers are in a package."""
    import onnxruntime

    compiler = shutil.which("c++")
    libraries = sorted((Path(onnxruntime.__file__).parent / "capi").glob("libonnxruntime.so*"))
    if compiler is None or not libraries:
        pytest.skip("needs a C++ compiler, and ONNX Runtime's wheel for Linux")
    compile = [compiler, "-std=c++17", "-Wall", "-Wextra", "-isystem", "/usr/include/onnxruntime"]
    probe = "#include <onnxruntime_cxx_api.h>\n"
    if subprocess.run(
        [*compile, "-xc++", "-E", "-"], input=probe.encode(), capture_output=True
    ).returncode:
        pytest.skip("needs ONNX Runtime's headers (libonnxruntime-dev), or CPLUS_INCLUDE_PATH")
    for name in ("libonnxruntime.so", "libonnxruntime.so.1"):
        (tmp_path / name).symlink_to(libraries[0])
    link = [f"-L{tmp_path}", "-lonnxruntime", f"-Wl,-rpath,{tmp_path}"]
    program = tmp_path / "click"
    subprocess.run([*compile, str(EXAMPLES / "click.cpp"), "-o", str(program), *link], check=True)

    found = run_click([str(program)], folder, small[0])

    assert overlap(found, small[1]) > 0.98
    arguments = [str(program), str(folder), str(EXAMPLES / "click.c"), "1", "1", "mask.pgm"]
    refused = subprocess.run(arguments, capture_output=True, text=True)
    assert refused.returncode == 2
    assert "is not a square binary PPM" in refused.stderr


def test_javascript_finds_the_same_mask(folder: Path, small: tuple[Path, Array]) -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("needs Node")
    names = ("onnxruntime-node", "onnxruntime-web")
    probes = ([node, "-e", f"require.resolve('{name}')"] for name in names)
    if all(subprocess.run(p, cwd=EXAMPLES, capture_output=True).returncode for p in probes):
        pytest.skip("needs `npm install --no-save onnxruntime-web`, or its folder in NODE_PATH")

    found = run_click([node, str(EXAMPLES / "click.cjs")], folder, small[0])

    assert overlap(found, small[1]) > 0.98

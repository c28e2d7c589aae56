"""The calls of ultralytics' documentation of SAM 2, and what results can do."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from samgraph.compat.ultralytics import SAM, Predictor, Results, SAM2VideoPredictor
from samgraph.errors import CheckpointError, ImageError, OptionError, PromptError
from samgraph.media.image.reading import read_image
from samgraph.media.mask.polygons import polygons_to_mask
from tests.golden import scenes
from tests.media.video_making import make_video

NANO = "samgraph-nano"
DISC, SQUARE = [40, 50], [118, 84]


@pytest.fixture(scope="module")
def model() -> SAM:
    return SAM(NANO)


@pytest.fixture
def picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    Image.fromarray(scenes.frame(0)).save(tmp_path / "bus.png")
    monkeypatch.chdir(tmp_path)
    return "bus.png"


CALLS: list[tuple[dict[str, Any], list[list[int]]]] = [
    ({"bboxes": [17, 27, 63, 73]}, [DISC]),
    ({"bboxes": [[17, 27, 63, 73], [100, 66, 136, 102]]}, [DISC, SQUARE]),
    ({"points": DISC, "labels": [1]}, [DISC]),
    ({"points": [DISC, SQUARE], "labels": [1, 1]}, [DISC, SQUARE]),
    ({"points": [[DISC, [48, 56]]], "labels": [[1, 1]]}, [DISC]),
    ({"points": [[DISC, SQUARE]], "labels": [[1, 0]]}, [DISC]),
    ({"points": [[DISC, [48, 56]], [SQUARE]], "labels": [[1, 1], [1]]}, [DISC, SQUARE]),
    ({"points": np.array([DISC]), "labels": np.array([1]), "bboxes": [17, 27, 63, 73]}, [DISC]),
]


@pytest.mark.parametrize(("prompts", "inside"), CALLS)
def test_prompts_give_a_mask_per_object(
    prompts: dict[str, Any], inside: list[list[int]], model: SAM, picture: str
) -> None:
    results = model(picture, **prompts)

    (result,) = results
    assert result.masks is not None
    assert result.masks.data.shape == (len(inside), 120, 160)
    others = [point for point in (DISC, SQUARE) if point not in inside]
    for mask, (x, y) in zip(result.masks.data, inside, strict=True):
        assert mask[y, x]
        assert not any(mask[v, u] for u, v in others)
    assert result.boxes.conf.shape == (len(inside),)


def test_results_describe_themselves(model: SAM, picture: str, tmp_path: Path) -> None:
    (result,) = model(picture, points=[DISC, SQUARE], labels=[1, 1])
    masks = result.masks
    assert masks is not None

    for mask, ring in zip(masks.data, masks.xy, strict=True):
        assert np.array_equal(polygons_to_mask([ring.astype(np.float64)], (120, 160)), mask)
    assert np.allclose(masks.xyn[0] * (160, 120), masks.xy[0], atol=1e-4)
    left, top, right, bottom = result.boxes.xyxy[0].tolist()
    columns = np.flatnonzero(masks.data[0].any(dim=0))
    assert (left, right) == (columns[0], columns[-1] + 1)
    assert result.boxes.xywh[0].tolist() == [
        (left + right) / 2, (top + bottom) / 2, right - left, bottom - top,
    ]  # fmt: skip
    assert np.allclose(result.boxes.xyxyn * (160, 120, 160, 120), result.boxes.xyxy)
    assert result.boxes.cls.tolist() == [0, 1]
    assert result.boxes.id is None
    assert len(result) == len(masks) == 2
    assert len(result[1]) == 1
    assert np.array_equal(masks[1].data[0], masks.data[1])
    assert [len(one) for one in result] == [1, 1]
    assert result.cpu().numpy().to("cpu") is result
    assert json.loads(result.to_json())[1]["box"]["x1"] == result.boxes.xyxy[1, 0]
    assert result.orig_shape == (120, 160)
    assert result.names == {0: "0", 1: "1"}
    assert result.verbose() == "2 objects"


def test_results_are_drawn_and_saved(model: SAM, picture: str, tmp_path: Path) -> None:
    (result,) = model(picture, bboxes=[17, 27, 63, 73])

    drawn = result.plot()
    assert drawn.shape == (120, 160, 3)
    assert not np.array_equal(drawn, result.orig_img)
    assert np.array_equal(result.plot(boxes=False, masks=False), result.orig_img)
    assert result.plot(pil=True).size == (160, 120)
    assert np.array_equal(result.orig_img[..., ::-1], scenes.frame(0))
    for name in ("out.png", "deeper/out.jpg"):
        assert result.save(name) == name
        assert read_image(tmp_path / name).shape == (120, 160, 3)
    assert np.array_equal(read_image(tmp_path / "out.png"), drawn[..., ::-1])
    result.save_txt("labels.txt", save_conf=True)
    result.save_txt("labels.txt")
    lines = (tmp_path / "labels.txt").read_text().splitlines()
    assert len(lines) == 2
    assert len(lines[0].split()) == len(lines[1].split()) + 1
    result.save_crop("crops")
    crop = read_image(tmp_path / "crops" / "0" / "im.jpg")
    left, top, right, bottom = result.boxes.xyxy[0].tolist()
    assert crop.shape[:2] == (bottom - top, right - left)


def test_arrays_are_in_the_order_of_opencv(model: SAM, picture: str) -> None:
    (from_file,) = model(picture, points=DISC, labels=[1])
    (from_array,) = model(scenes.frame(0)[..., ::-1], points=DISC, labels=[1])
    (from_pillow,) = model(Image.fromarray(scenes.frame(0)), points=DISC, labels=[1])

    for other in (from_array, from_pillow):
        assert np.array_equal(other.masks.data, from_file.masks.data)
        assert np.array_equal(other.orig_img, from_file.orig_img)


def test_without_a_prompt_everything_is_segmented(model: SAM, picture: str) -> None:
    options = {"points_stride": 6, "conf_thres": 0.5, "stability_score_thresh": 0.5}
    results = model(source=[picture, scenes.frame(1)], stream=True, save=True, **options)

    found = [next(results), next(results)]

    assert all(isinstance(result, Results) and len(result) > 3 for result in found)
    assert Path("runs/segment/predict/bus.jpg").is_file()
    (nothing,) = model(picture, points_stride=1, conf_thres=0.999)
    assert nothing.masks is None
    assert len(nothing) == 0
    assert nothing.plot().shape == (120, 160, 3)


def test_a_folder_holds_images(model: SAM, picture: str) -> None:
    assert [r.path for r in model(".", bboxes=[17, 27, 63, 73])] == [str(Path(picture))]


def test_an_image_is_set_once_and_prompted_often(model: SAM, picture: str) -> None:
    predictor = Predictor(overrides={"conf": 0.25, "task": "segment", "imgsz": 1024})
    predictor.setup_model(model.model)
    predictor.set_image(scenes.frame(0)[..., ::-1])

    boxes = predictor(bboxes=[17, 27, 63, 73])
    (click,) = predictor(points=SQUARE, labels=[1], stream=True)
    (other,) = predictor(source=picture, points=DISC, labels=[1])
    predictor.reset_image()

    assert [len(result) for result in boxes] == [1]
    (wanted,) = model(picture, points=SQUARE, labels=[1])
    assert np.array_equal(click.masks.data, wanted.masks.data)
    assert other.masks.data[0, 50, 40]
    with pytest.raises(ImageError, match="there is no image"):
        predictor(points=SQUARE, labels=[1])
    with pytest.raises(PromptError, match="one image can be set"):
        predictor.set_image([picture, picture])


def test_a_mask_is_a_prompt(model: SAM, picture: str) -> None:
    (first,) = model(picture, bboxes=[17, 27, 63, 73])

    (again,) = model(picture, masks=first.masks.data)

    both = (first.masks.data & again.masks.data).sum()
    assert both > 0.7 * (first.masks.data | again.masks.data).sum()


def test_everything_that_is_asked_for_is_saved(model: SAM, tmp_path: Path, picture: str) -> None:
    pytest.importorskip("av")
    file = make_video(tmp_path / "test.mp4", scenes.frames(2))
    overrides = {"model": model.model, "project": "runs", "save": True}
    predictor = SAM2VideoPredictor(overrides=overrides)
    saved = {"save": True, "save_txt": True, "save_crop": True, "project": "runs", "name": "a"}

    model.predict(picture, False, [17, 27, 63, 73], **saved)
    model(str(file), bboxes=[[17, 27, 63, 73]], project="runs", name="frames", save=True)
    predictor(source=str(file), bboxes=[[17, 27, 63, 73]], name="tracked")

    found = sorted(str(path.relative_to("runs")) for path in Path("runs").rglob("*.*"))
    assert found == [
        "a/bus.jpg", "a/crops/0/bus.jpg", "a/labels/bus.txt",
        "frames/test_1.jpg", "frames/test_2.jpg", "tracked/test_1.jpg", "tracked/test_2.jpg",
    ]  # fmt: skip


def test_a_misspelt_option_is_refused(model: SAM, picture: str) -> None:
    with pytest.raises(OptionError, match=r"no option `bbox`(.|\n)*did you mean `bboxes`"):
        model(picture, bbox=[17, 27, 63, 73])
    with pytest.raises(OptionError, match="no option `point`"):
        SAM2VideoPredictor(overrides={"model": NANO})(source=picture, point=DISC)
    assert len(model(picture, bboxes=[17, 27, 63, 73], conf=0.2, imgsz=1024, verbose=False)) == 1


def test_names_that_are_not_here_say_why() -> None:
    from samgraph.compat.ultralytics.models import sam

    assert sam.Predictor is sam.SAM2Predictor is Predictor
    with pytest.raises(ImportError, match="there is no detector here"):
        from samgraph.compat.ultralytics import YOLO  # noqa: F401
    with pytest.raises(ImportError, match="cannot import name 'Nothing'"):
        from samgraph.compat.ultralytics import Nothing  # noqa: F401


TRACKED: list[tuple[dict[str, Any], int]] = [
    ({"points": DISC, "labels": 1}, 1),
    ({"points": [DISC, SQUARE], "labels": [1, 1]}, 2),
    ({"points": [[DISC, SQUARE]], "labels": [[1, 0]]}, 1),
    ({"bboxes": [[17, 27, 63, 73]]}, 1),
]


@pytest.mark.parametrize(("prompts", "count"), TRACKED)
def test_objects_of_a_video_are_tracked(prompts: dict[str, Any], count: int) -> None:
    overrides = {
        "conf": 0.25, "task": "segment", "mode": "predict", "imgsz": 1024, "model": NANO,
    }  # fmt: skip
    predictor = SAM2VideoPredictor(overrides=overrides)

    results = predictor(source=[f[..., ::-1] for f in scenes.frames(3)], **prompts)

    assert len(results) == 3
    for t, result in enumerate(results):
        assert result.masks is not None
        assert result.boxes.id is not None
        assert result.boxes.id.tolist() == list(range(1, count + 1))
        assert result.masks.data[0, 50 + t * t // 3, 40 + 9 * t]
        assert np.array_equal(result.orig_img[..., ::-1], scenes.frame(t))


def test_a_video_file_is_segmented_or_tracked(model: SAM, tmp_path: Path) -> None:
    pytest.importorskip("av")
    file = make_video(tmp_path / "test.mp4", scenes.frames(3))

    frames = list(model(str(file), stream=True, points=[SQUARE], labels=[1]))
    predictor = SAM2VideoPredictor(overrides={"model": NANO})
    tracked = predictor(source=str(file), points=SQUARE, labels=1)

    assert len(frames) == len(tracked) == 3
    assert {result.path for result in frames + tracked} == {str(file)}
    for t, result in enumerate(tracked):
        assert result.masks is not None
        assert result.masks.data[0, 84 - 6 * t, 118]


def test_models_go_by_ultralytics_names(monkeypatch: pytest.MonkeyPatch, model: SAM) -> None:
    asked = []

    def load(name: str, **_: Any) -> Any:
        asked.append(name)
        return model.model.core

    monkeypatch.setattr("samgraph.compat.ultralytics.model.load_model", load)

    for name in ("sam2_b.pt", "sam2.1_t.pt", "sam2.1_l.pt", "weights/sam2_s.pt"):
        SAM(name)

    assert asked == ["sam2-base-plus", "sam2.1-tiny", "sam2.1-large", "sam2-small"]
    with pytest.raises(CheckpointError, match="no released model"):
        SAM("yolo11n.pt")
    assert model.info()[1] > 11_000_000
    assert model.eval().to("cpu").is_sam2


@pytest.mark.parametrize(
    ("source", "prompts", "error", "message"),
    [
        ("https://ultralytics.com/images/bus.jpg", {}, ImageError, "is an address"),
        (None, {}, ImageError, "there is no image"),
        ("bus.png", {"points": [1, 2, 3], "labels": [1]}, PromptError, "pairs of x and y"),
        ("bus.png", {"points": [DISC, SQUARE], "labels": [1, 1, 1]}, PromptError, "needs a label"),
        (
            "bus.png",
            {"points": DISC, "bboxes": [[1, 2, 3, 4]] * 2},
            PromptError,
            "how many objects",
        ),
        ("bus.png", {"points": [999, 2]}, PromptError, "outside the image"),
    ],
)
def test_calls_without_sense_are_refused(
    source: Any, prompts: Any, error: Any, message: str, model: SAM, picture: str
) -> None:
    with pytest.raises(error, match=message):
        model(source, **prompts)


def test_a_video_needs_a_prompt() -> None:
    with pytest.raises(PromptError, match="a video needs a prompt"):
        SAM2VideoPredictor(overrides={"model": NANO})(source=scenes.frames(2))

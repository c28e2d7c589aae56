"""Automatic masks: deterministic, complete, and cleaned on request."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from samgraph.errors import ImageError, OptionError
from samgraph.formats import read_coco
from samgraph.media.mask import rle
from samgraph.media.mask.geometry import drop_specks, fill_holes
from samgraph.predict.everything.generate import Everything
from samgraph.predict.everything.options import EverythingOptions
from tests.predict.pictures import HEIGHT, WIDTH, encoded, model, picture

# Random weights find the same large mask everywhere: let overlapping boxes stay.
FEW: dict[str, Any] = {
    "points_per_side": 3,
    "pred_iou_thresh": 0.5,
    "stability_score_thresh": 0.5,
    "box_nms_thresh": 1.0,
    "progress": False,
}


@pytest.fixture(scope="module")
def found() -> Everything:
    return model().everything(encoded(), **FEW)


def test_every_mask_passes_every_filter(found: Everything) -> None:
    assert len(found) > 3
    assert (found.scores > 0.5).all()
    assert (found.stability >= 0.5).all()
    assert (np.diff(found.scores) <= 0).all()
    assert found.masks.shape == (len(found), HEIGHT, WIDTH)
    assert np.array_equal(found.areas, found.masks.sum((1, 2)))
    assert all(segment.crop_xyxy == (0, 0, WIDTH, HEIGHT) for segment in found)
    assert repr(found) == f"{len(found)} masks, 160x120, best {found.scores[0]:.2f}"


def test_a_mask_is_what_its_point_predicts(found: Everything) -> None:
    for segment in found:
        assert segment.score is not None
        result = encoded().predict(points=[segment.point_xy])
        index = int(np.abs(result.scores - segment.score).argmin())
        assert result.scores[index] == pytest.approx(segment.score, abs=1e-5)
        assert (result.masks[index] != segment.mask).sum() <= 1
        logits = result.full_logits()[index]
        expected = (logits > 1).sum() / (logits > -1).sum()
        assert segment.stability == pytest.approx(expected, abs=1e-3)


def test_the_result_is_deterministic_whatever_the_batch(found: Everything) -> None:
    again = model().everything(picture(), **FEW, points_per_batch=2)

    assert [segment.rle for segment in again] == [segment.rle for segment in found]
    assert again.scores.tolist() == found.scores.tolist()


def test_overlapping_boxes_are_dropped(found: Everything) -> None:
    fewer = model().everything(encoded(), **{**FEW, "box_nms_thresh": 0.7})

    assert 0 < len(fewer) < len(found)
    assert fewer[0].rle == found[0].rle


def test_masks_of_crops_are_within_them_and_not_cut_by_their_edges() -> None:
    options = {**FEW, "crop_n_layers": 1, "points_per_side": 2, "stability_score_thresh": 0.0}

    found = model().everything(picture(), **options, crop_nms_thresh=1.0)

    crops = {segment.crop_xyxy for segment in found}
    assert (0, 0, WIDTH, HEIGHT) in crops
    for segment in found:
        assert segment.size_hw == (HEIGHT, WIDTH)
        assert segment.crop_xyxy is not None
        left, top, right, bottom = segment.crop_xyxy
        x0, y0, x1, y1 = segment.box_xyxy
        assert left <= x0 <= x1 <= right
        assert top <= y0 <= y1 <= bottom
        assert left <= 20 or x0 - left > 20
        assert right >= WIDTH - 20 or right - (x1 - 1) > 20


def test_small_regions_are_removed(found: Everything) -> None:
    clean = model().everything(encoded(), **FEW, min_mask_region_area=100)

    before = {
        rle.encode(drop_specks(fill_holes(segment.mask, 99), 99))["counts"] for segment in found
    }
    assert {segment.rle["counts"] for segment in clean} <= before
    assert {segment.rle["counts"] for segment in clean} != {
        segment.rle["counts"] for segment in found
    }
    for segment in clean:
        mask = segment.mask
        assert np.array_equal(fill_holes(mask, 99), mask)
        assert np.array_equal(drop_specks(mask, 99), mask)


def test_masks_can_be_refined_as_mask_prompts() -> None:
    options = {**FEW, "points_per_side": 2, "pred_iou_thresh": 0.0, "stability_score_thresh": 0}

    refined = model().everything(encoded(), **options, use_m2m=True)

    assert len(refined) == 12
    first = encoded().predict(points=[refined[0].point_xy])
    again = [
        encoded().predict(points=[refined[0].point_xy], mask=mask.logits, multimask=False)
        for mask in first
    ]
    assert min(abs(mask.scores[0] - refined.scores[0]) for mask in again) < 1e-4


def test_one_mask_per_point_and_custom_points() -> None:
    grid = np.array([[0.25, 0.4], [0.7, 0.7]])
    options: dict[str, Any] = {
        "pred_iou_thresh": 0, "stability_score_thresh": 0, "box_nms_thresh": 1.0,
    }  # fmt: skip

    found = model().everything(
        encoded(), point_grids=[grid], multimask=False, progress=False, **options
    )

    points = sorted(segment.point_xy for segment in found if segment.point_xy)
    assert points == [(40, 48), (112, 84)]


def test_progress_is_reported_to_a_function() -> None:
    steps: list[tuple[int, int]] = []
    options = {**FEW, "points_per_batch": 4, "progress": lambda *step: steps.append(step)}

    model().everything(encoded(), **options)

    assert steps == [(4, 9), (8, 9), (9, 9)]


def test_progress_is_printed_to_standard_error_only(capfd: pytest.CaptureFixture[str]) -> None:
    model().everything(encoded(), **{**FEW, "points_per_side": 1, "progress": True})

    out, _ = capfd.readouterr()
    assert out == ""


def test_everything_is_saved_and_shown(found: Everything, tmp_path: Path) -> None:
    found.save(tmp_path / "masks.json")
    found.save(tmp_path / "labels.png")
    found.save(tmp_path / "look.jpg")
    written = found[:2].save(tmp_path / "one.png", all=True)

    (image,) = read_coco(tmp_path / "masks.json")
    assert [segment.rle for segment in image.segments] == [segment.rle for segment in found]
    with Image.open(tmp_path / "labels.png") as labels:
        assert np.array_equal(np.asarray(labels), found.labels())
    assert [path.name for path in written] == ["one_1.png", "one_2.png"]
    assert found._repr_png_() is not None


def test_the_encoding_of_masks_in_dicts_is_an_option(found: Everything) -> None:
    assert found.to_sam_dicts()[0]["segmentation"].dtype == np.bool_
    options = {**FEW, "points_per_side": 1, "pred_iou_thresh": 0.0}
    coded = model().everything(encoded(), **options, output_mode="coco_rle")

    assert isinstance(coded.to_sam_dicts()[0]["segmentation"]["counts"], str)


def test_nothing_found_is_an_empty_list(tmp_path: Path) -> None:
    found = model().everything(encoded(), **{**FEW, "pred_iou_thresh": 1.0})

    assert len(found) == 0
    assert repr(found) == "0 masks, 160x120"
    assert found.masks.shape == (0, HEIGHT, WIDTH)
    assert found.boxes.shape == (0, 4)
    assert found.to_sam_dicts() == []
    found.save(tmp_path / "none.png")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"points_per_sid": 3}, "points_per_side"),
        ({"points_per_side": 0}, "`points_per_side` is a whole number from 1 up"),
        ({"points_per_side": 2.5}, "whole number"),
        ({"points_per_batch": 0}, "`points_per_batch`"),
        ({"points_per_side": 5000}, "too many"),
        ({"points_per_side": None}, "either `points_per_side` or `point_grids`"),
        ({"points_per_side": 3, "point_grids": [[[0.5, 0.5]]]}, "and not both"),
        ({"point_grids": [[[0.5, 1.5]]]}, "from 0 to 1"),
        ({"point_grids": [[0.5]]}, "from 0 to 1"),
        ({"point_grids": "grid"}, "not a list of arrays"),
        ({"point_grids": [[[0.5, 0.5]]], "crop_n_layers": 1}, "too few"),
        ({"pred_iou_thresh": "high"}, "`pred_iou_thresh` is a number"),
        ({"stability_score_offset": float("nan")}, "is a number"),
        ({"crop_overlap_ratio": 1.5}, "from 0 to 1"),
        ({"crop_n_layers": 5}, "too many"),
        ({"points_per_side": 2, "crop_n_layers": 2, "crop_n_points_downscale_factor": 2}, "left"),
        ({"min_mask_region_area": -1}, "not negative"),
        ({"output_mode": "png"}, "no output mode"),
    ],
)
def test_options_out_of_range_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError) as caught:
        model().everything(encoded(), **options)

    assert message in str(caught.value)


def test_options_are_given_one_way() -> None:
    with pytest.raises(OptionError, match="either `options` or single options"):
        model().everything(encoded(), options=EverythingOptions(), points_per_side=3)
    with pytest.raises(OptionError, match="too small for so many crops"):
        model().everything(picture()[:3, :3], crop_n_layers=4, crop_overlap_ratio=0.0)


def test_memory_does_not_grow_with_the_masks() -> None:
    code = """
import resource, numpy as np
from tests.predict.pictures import model
def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
photo = np.random.default_rng(0).integers(0, 255, (3000, 4000, 3), dtype=np.uint8)
image = model().image(photo)
image.predict(points=[[(5, 5)]] * 4)
before = peak()
found = model().everything(image, points_per_side=6, pred_iou_thresh=0.0,
                           stability_score_thresh=0.0, box_nms_thresh=1.0, progress=False)
print(len(found), peak() - before)
"""
    root = Path(__file__).resolve().parents[3]
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=root,
        env={**os.environ, "PYTHONPATH": f"{root / 'src'}{os.pathsep}{root}"},
    )

    count, grown = done.stdout.split()
    # One mask of 12 megapixels is 12 MB, or 48 as floats; 108 of them would be 1300 or 5200.
    assert int(count) == 108
    assert float(grown) < 150


def test_a_bad_image_is_one_clear_error() -> None:
    with pytest.raises(ImageError, match="is not an image"):
        model().everything(b"not an image")


@pytest.mark.parametrize("shape", [(1, 1), (1, 40), (40, 1), (2, 2)])
def test_the_smallest_pictures_have_few_masks(shape: tuple[int, int]) -> None:
    pixels = np.full((*shape, 3), 120, np.uint8)

    found = model().everything(
        pixels, points_per_side=8, pred_iou_thresh=0.0, stability_score_thresh=0.0
    )

    masks = {segment.rle["counts"] for segment in found}
    assert len(found) == len(masks)
    if shape == (1, 1):
        assert len(found) <= 2


@pytest.mark.parametrize(
    "setting",
    [
        {"multimask": "yes"},
        {"multimask": np.array([True, False])},
        {"use_m2m": 3.5},
        {"pred_iou_thresh": 10**400},
        {"box_nms_thresh": float("nan")},
        {"mask_threshold": 1j},
        {"points_per_side": 10**400},
    ],
)
def test_settings_that_are_no_numbers_are_refused(setting: dict[str, Any]) -> None:
    with pytest.raises(OptionError):
        model().everything(np.zeros((8, 8, 3), np.uint8), **setting)

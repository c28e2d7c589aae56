"""`samgraph everything`: automatic masks, in several formats."""

import io
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from samgraph.formats import read_coco
from tests.cli.running import Outcome
from tests.predict.pictures import model, picture

Command = Callable[..., Outcome]

FEW = ("--points-per-side", "2", "--iou", "0.3", "--stability", "0.3", "--nms", "1")


def test_masks_are_written_as_coco(folder: Path, samgraph: Command) -> None:
    done = samgraph("everything", "a.png", "b.png", *FEW, "-o", "masks/", "--format", "coco")

    assert done.code == 0
    assert done.text.endswith("wrote masks/annotations.json\n")
    first, second = read_coco(folder / "masks" / "annotations.json")
    assert (first.name, second.name) == ("a.png", "b.png")
    expected = model().everything(
        picture(),
        points_per_side=2,
        pred_iou_thresh=0.3,
        stability_score_thresh=0.3,
        box_nms_thresh=1.0,
        progress=False,
    )
    assert [segment.rle for segment in first.segments] == [segment.rle for segment in expected]


def test_an_overlay_and_a_label_map(folder: Path, samgraph: Command) -> None:
    assert samgraph("everything", "a.png", *FEW, "-o", "look.jpg").code == 0
    assert samgraph("everything", "a.png", *FEW, "-o", "map.png").code == 0

    labels = np.asarray(Image.open(io.BytesIO((folder / "map.png").read_bytes())))
    assert labels.shape == (120, 160)
    assert (folder / "look.jpg").is_file()


def test_each_mask_may_have_its_own_file(folder: Path, samgraph: Command) -> None:
    done = samgraph("everything", "a.png", *FEW, "-o", "cut/", "--format", "cutout", "--separate")

    assert done.code == 0
    count = len(list((folder / "cut").glob("a_*.png")))
    assert f"a.png: {count} masks" in done.text


def test_options_are_passed_on(folder: Path, samgraph: Command) -> None:
    options = ("--crop-layers", "1", "--crop-downscale", "2", "--crop-overlap", "0.2")
    more = ("--min-area", "30", "--refine", "--single", "--threshold", "0.5", "--crop-nms", "0.9")
    rest = ("--stability-offset", "0.5", "--points-per-batch", "3", "--json", "--quiet")

    done = samgraph("everything", "a.png", *FEW, *options, *more, *rest)

    assert done.code == 0
    (image,) = json.loads(done.text)["images"]
    assert image["width"] == 160
    expected = model().everything(
        picture(),
        points_per_side=2,
        points_per_batch=3,
        pred_iou_thresh=0.3,
        stability_score_thresh=0.3,
        stability_score_offset=0.5,
        mask_threshold=0.5,
        box_nms_thresh=1.0,
        crop_n_layers=1,
        crop_nms_thresh=0.9,
        crop_overlap_ratio=0.2,
        crop_n_points_downscale_factor=2,
        min_mask_region_area=30,
        use_m2m=True,
        multimask=False,
        progress=False,
    )
    assert len(expected) > 0
    assert [mask["area"] for mask in image["masks"]] == expected.areas.tolist()
    assert [mask["score"] for mask in image["masks"]] == pytest.approx(expected.scores, abs=1e-5)


def test_bad_options_and_bad_files(folder: Path, samgraph: Command) -> None:
    wrong = samgraph("everything", "a.png", "--points-per-side", "0")
    mixed = samgraph("everything", "bad.png", "a.png", *FEW, "-o", "out/")

    assert (wrong.code, mixed.code) == (2, 3)
    assert "`points_per_side` is a whole number from 1 up" in wrong.err
    assert mixed.err.endswith("1 of 2 images failed: `bad.png`\n")
    assert [image.name for image in read_coco(folder / "out" / "annotations.json")] == ["a.png"]

"""Results: lists of masks that print, save and export themselves."""

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from samgraph.errors import OptionError, OutputError
from samgraph.formats import (
    read_coco,
    read_cvat,
    read_davis_frame,
    read_label_studio,
    read_labelme,
    read_yolo,
)
from samgraph.formats.sam import from_sam_dicts
from samgraph.media.mask.geometry import mask_areas, masks_to_boxes
from samgraph.predict.image.result import CleanOptions, Result
from samgraph.predict.output import Picture
from tests.media.shapes import discs
from tests.predict.pictures import encoded

SIZE = 96


def drawn(count: int = 3, prompts: int = 1, *, pixels: bool = True) -> Result:
    """A result with masks of discs; the second of each prompt has the highest score."""
    masks = np.stack([discs(seed, SIZE, 3) for seed in range(count * prompts)])
    image = np.random.default_rng(0).integers(0, 255, (SIZE, SIZE, 3), dtype=np.uint8)
    return Result(
        Picture("photo.jpg", (SIZE, SIZE), image if pixels else None),
        np.where(masks, 50, -50).astype(np.float32)[:, ::4, ::4],
        np.tile([0.5, 0.9, 0.25, 0.1][:count], prompts).astype(np.float32),
        np.linspace(0.9, 1, count * prompts, dtype=np.float32),
        np.repeat(np.arange(prompts), count),
        masks=masks,
    )


def test_a_result_prints_its_size_and_best_score() -> None:
    assert repr(drawn()) == "3 masks, 96x96, best 0.90"
    assert repr(drawn()[0]) == "1 mask, 96x96, best 0.50"
    assert repr(drawn(2, 4)) == "8 masks of 4 prompts, 96x96, best 0.90"
    assert repr(drawn()[3:]) == "0 masks, 96x96"


def test_a_result_is_a_list() -> None:
    result = drawn()

    assert len(result) == 3
    assert result[2].scores.tolist() == [0.25]
    assert result[-1].scores.tolist() == [0.25]
    assert result[1:].scores.tolist() == pytest.approx([0.9, 0.25])
    assert result[[2, 0]].scores.tolist() == [0.25, 0.5]
    assert result[result.scores > 0.4].scores.tolist() == pytest.approx([0.5, 0.9])
    assert [len(one) for one in result] == [1, 1, 1]
    with pytest.raises(IndexError):
        result[3]


def test_the_best_has_the_highest_score_of_each_prompt() -> None:
    result = drawn(3, 2)

    assert result.best.prompts.tolist() == [0, 1]
    assert np.array_equal(result.best.masks, result.masks[[1, 4]])
    assert np.array_equal(result.of_prompt(1).masks, result.masks[3:])
    assert np.array_equal(drawn().mask, drawn().masks[1])


def test_boxes_and_areas_are_those_of_the_masks() -> None:
    result = encoded().predict(points=[(40, 50)])

    assert result.masks.shape == (3, 120, 160)
    assert result.masks.dtype == np.bool_
    assert np.array_equal(result.boxes, masks_to_boxes(result.masks))
    assert np.array_equal(result.areas, mask_areas(result.masks))
    assert result.stability.shape == result.scores.shape == (3,)
    assert np.abs(result.logits).max() <= 32


def test_masks_clean_up() -> None:
    mask = np.zeros((1, SIZE, SIZE), np.bool_)
    mask[0, 10:60, 10:60] = True
    mask[0, 20:22, 20:22] = False
    mask[0, 80, 80] = True
    result = drawn(1)
    result = Result(
        result.picture, result.logits, result.scores, result.stability, result.prompts, masks=mask
    )

    clean = result.fill_holes(4).drop_specks(1)

    assert clean.areas.tolist() == [2500]
    assert result.areas.tolist() == [2497]
    assert result.fill_holes(3).areas.tolist() == [2497]
    assert clean.smooth(2).masks[0, 11, 11]
    assert not clean.smooth(2).masks[0, 10, 10]
    for radius, expected in ((0, clean), (2, clean.smooth(2))):
        options = CleanOptions(fill_holes=4, drop_specks=1, smooth=radius)
        assert np.array_equal(result.clean(options).masks, expected.masks)
    assert result.clean(CleanOptions()) is result


def test_a_mask_is_saved_in_black_and_white(tmp_path: Path) -> None:
    result = drawn()

    written = result.save(tmp_path / "mask.png")

    assert written == [tmp_path / "mask.png"]
    saved = np.asarray(Image.open(io.BytesIO(written[0].read_bytes())))
    assert np.array_equal(saved, result.mask * np.uint8(255))


def test_in_a_folder_the_file_has_the_name_of_the_image(tmp_path: Path) -> None:
    result, folder = drawn(), tmp_path / "new"

    written = [*result.save(f"{folder}/", "yolo"), *result.save(folder, "coco")]

    assert written == [folder / name for name in ("photo.txt", "classes.txt", "photo.json")]
    assert all(file.is_file() for file in written)
    with pytest.raises(OutputError, match=r"cannot hold the format sav"):
        result.save(f"{tmp_path}/other/", "sav")  # type: ignore[arg-type]  # that is refused
    with pytest.raises(OutputError, match=r"cannot hold(.|\n)*name it `.*/mask\.txt`"):
        result.save(tmp_path / "mask", "yolo")
    assert [path.name for path in tmp_path.iterdir()] == ["new"]


def test_several_objects_are_saved_as_a_label_map(tmp_path: Path) -> None:
    result = drawn(2, 3)

    result.save(tmp_path / "labels.png")

    saved = Image.open(io.BytesIO((tmp_path / "labels.png").read_bytes()))
    assert saved.mode == "P"
    assert np.array_equal(np.asarray(saved), result.labels())
    assert set(np.unique(result.labels())) <= {0, 1, 2, 3}


def test_a_cut_out_is_transparent_around_the_object(tmp_path: Path) -> None:
    result = drawn()

    result.save(tmp_path / "cut.png", "cutout")
    result.save(tmp_path / "crop.webp", "cutout", crop=True)

    saved = np.asarray(Image.open(io.BytesIO((tmp_path / "cut.png").read_bytes())))
    assert np.array_equal(saved[..., 3] > 0, result.mask)
    assert np.array_equal(saved[result.mask][:, :3], result.picture.need_pixels()[result.mask])
    left, top, right, bottom = result.best.boxes[0]
    with Image.open(tmp_path / "crop.webp") as crop:
        assert crop.size == (right - left, bottom - top)


def test_other_pictures_are_overlays(tmp_path: Path) -> None:
    result = drawn()

    result.save(tmp_path / "look.jpg")
    result.save(tmp_path / "look.png", "overlay")

    saved = np.asarray(Image.open(io.BytesIO((tmp_path / "look.png").read_bytes())))
    assert np.array_equal(saved, result.overlay())
    assert not np.array_equal(saved, result.picture.need_pixels())
    with Image.open(tmp_path / "look.jpg") as jpeg:
        assert (jpeg.format, jpeg.size) == ("JPEG", (SIZE, SIZE))


def test_all_masks_are_saved_to_numbered_files(tmp_path: Path) -> None:
    result = drawn()

    written = result.save(tmp_path / "mask.png", all=True)

    assert [path.name for path in written] == ["mask_1.png", "mask_2.png", "mask_3.png"]
    for path, mask in zip(written, result.masks, strict=True):
        assert np.array_equal(np.asarray(Image.open(io.BytesIO(path.read_bytes()))) > 0, mask)


def test_coco_is_written_and_read_back(tmp_path: Path) -> None:
    result = drawn()

    result.save(tmp_path / "best.json", label="cat")
    result.save(tmp_path / "all.json", "coco", all=True)

    (best,) = read_coco(tmp_path / "best.json")
    assert (best.name, best.size_hw) == ("photo.jpg", (SIZE, SIZE))
    assert [segment.label for segment in best.segments] == ["cat"]
    assert np.array_equal(best.segments[0].mask, result.mask)
    (everything,) = read_coco(tmp_path / "all.json")
    assert len(everything.segments) == 3
    assert json.loads((tmp_path / "all.json").read_text()) == result.to_coco()


def test_labelme_polygons_and_yolo_are_written(tmp_path: Path) -> None:
    result = drawn().best

    result.save(tmp_path / "photo.json", "labelme")
    result.save(tmp_path / "outlines.json", "polygons", tolerance=1)
    result.save(tmp_path / "photo.txt")

    assert np.array_equal(read_labelme(tmp_path / "photo.json").segments[0].mask, result.mask)
    assert json.loads((tmp_path / "photo.json").read_text()) == result.to_labelme()
    (image,) = json.loads((tmp_path / "outlines.json").read_text())
    (polygons,) = result.to_polygons(1)
    assert [shape["outer"] for shape in image["masks"][0]["polygons"]] == [
        polygon.outer.tolist() for polygon in polygons
    ]
    read = read_yolo(tmp_path / "photo.txt", (SIZE, SIZE)).segments[0].mask
    assert (read != result.mask).mean() < 0.01


def test_cvat_label_studio_and_davis_are_written(tmp_path: Path) -> None:
    result = drawn().best

    result.save(tmp_path / "photo.xml", label="cat")
    result.save(tmp_path / "tasks.json", "label-studio", label="cat")
    result.save(tmp_path / "ids.png", "davis")

    for (image,) in (read_cvat(tmp_path / "photo.xml"), read_label_studio(tmp_path / "tasks.json")):
        assert image.name == "photo.jpg"
        assert [segment.label for segment in image.segments] == ["cat"]
        assert np.array_equal(image.segments[0].mask, result.mask)
    (segment,) = read_davis_frame(tmp_path / "ids.png").segments
    assert segment.object_id == 1
    assert np.array_equal(segment.mask, result.mask)


def test_sam_dicts_hold_the_masks() -> None:
    result = drawn()

    for mode in ("binary_mask", "uncompressed_rle", "coco_rle"):
        dicts = result.to_sam_dicts(mode)
        again = from_sam_dicts(dicts)
        assert all(np.array_equal(a.mask, b) for a, b in zip(again, result.masks, strict=True))
        assert [d["predicted_iou"] for d in dicts] == pytest.approx([0.5, 0.9, 0.25])


def test_a_notebook_shows_the_overlay() -> None:
    png = drawn()._repr_png_()

    assert png is not None
    assert np.array_equal(np.asarray(Image.open(io.BytesIO(png))), drawn().overlay())
    assert drawn(pixels=False)._repr_png_() is None


def test_show_opens_a_viewer(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[Any] = []
    monkeypatch.setattr(Image.Image, "show", lambda image: shown.append(image))

    drawn().show()

    assert [image.size for image in shown] == [(SIZE, SIZE)]


@pytest.mark.parametrize(
    ("path", "kind", "message"),
    [
        ("out", None, r"name it `.*out\.png`"),
        ("out.gif", None, "does not say what to write"),
        ("out.jpg", "png", "cannot hold the format png"),
        ("out.jpg", "cutout", "cannot hold the format cutout"),
        ("out.png", "coco", "cannot hold the format coco"),
        ("out.json", "yolo", "cannot hold the format yolo"),
        ("missing/out.png", None, "mkdir -p"),
    ],
)
def test_a_result_that_cannot_be_written_says_why(
    path: str, kind: Any, message: str, tmp_path: Path
) -> None:
    with pytest.raises(OutputError, match=message):
        drawn().save(tmp_path / path, kind)

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("threshold", [float("nan"), float("inf"), "high", None])
def test_a_threshold_is_a_number(threshold: Any) -> None:
    with pytest.raises(OptionError, match="`threshold` must be a finite number"):
        encoded().predict(points=[(40, 50)], threshold=threshold)


def test_an_unknown_format_is_refused() -> None:
    with pytest.raises(OptionError, match="there is no format `bmp`"):
        drawn().save("out.png", "bmp")  # type: ignore[arg-type]  # that is the point


def test_without_pixels_masks_are_saved_and_overlays_are_not(tmp_path: Path) -> None:
    result = drawn(pixels=False)

    result.save(tmp_path / "mask.png")

    with pytest.raises(OutputError, match="not available"):
        result.save(tmp_path / "look.jpg")

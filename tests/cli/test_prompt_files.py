"""`samgraph segment --prompts`: prompts for each image from CSV, COCO or YOLO."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from samgraph.errors import ImageError, PromptError
from samgraph.formats import read_coco
from samgraph.jobs.batch.manifests import read_manifest
from samgraph.jobs.prompt_files import read_prompt_file
from tests.cli.running import Outcome
from tests.golden import scenes
from tests.predict.pictures import encoded

Run = Callable[..., Outcome]
BOX, OTHER = (17.0, 27.0, 63.0, 73.0), (100.0, 70.0, 130.0, 100.0)


@pytest.fixture
def photos(folder: Path) -> Path:
    path = folder / "photos"
    path.mkdir()
    for number, name in enumerate(("a.png", "b.png", "c.png")):
        Image.fromarray(scenes.frame(4 * number)).save(path / name)
    return path


@pytest.mark.usefixtures("photos")
def test_rows_are_objects_with_labels(samgraph: Run) -> None:
    Path("boxes.csv").write_text(
        "path,x0,y0,x1,y1,points,label\n"
        "a.png,17,27,63,73,,cup\n"
        'photos/b.png,,,,,"118 84",dog\n'
        "a.png,100,70,130,100,115 85,dog\n"
    )

    done = samgraph("segment", "photos/", "--prompts", "boxes.csv", "-o", "all.json")

    assert done.code == 0, done.err
    assert "1 of 3 images have no prompt" in done.err
    first, second = read_coco("all.json")
    assert [image.name for image in (first, second)] == ["a.png", "b.png"]
    assert [segment.label for segment in first.segments] == ["cup", "dog"]
    assert [segment.label for segment in second.segments] == ["dog"]
    alone = encoded().predict(box=BOX, multimask=False)
    both = encoded().predict(box=OTHER, points=[(115, 85)], multimask=False)
    assert np.array_equal(first.segments[0].mask, alone.masks[0])
    assert np.array_equal(first.segments[1].mask, both.masks[0])


@pytest.mark.usefixtures("photos")
def test_coco_and_yolo_boxes_are_the_same_prompts(samgraph: Run) -> None:
    Path("boxes.csv").write_text('image,box,label\na.png,"17,27,63,73",cup\n')
    document = {
        "images": [{"id": 4, "file_name": "a.png", "width": 160, "height": 120}],
        "categories": [{"id": 2, "name": "cup"}],
        "annotations": [{"id": 1, "image_id": 4, "category_id": 2, "bbox": [17, 27, 46, 46]}],
    }
    Path("boxes.json").write_text(json.dumps(document))
    Path("labels").mkdir()
    Path("labels/a.txt").write_text(f"1 {40 / 160} {50 / 120} {46 / 160} {46 / 120}\n")
    Path("labels/classes.txt").write_text("dog\ncup\n")

    found = []
    for source in ("boxes.csv", "boxes.json", "labels"):
        done = samgraph("segment", "photos", "--prompts", source, "--quiet", "-o", "a.json")
        assert (done.code, done.err, done.out) == (0, "", b"")
        found += read_coco("a.json")

    assert [image.segments[0].label for image in found] == ["cup"] * 3
    masks = [image.segments[0].mask for image in found]
    assert masks[0].any()
    assert np.array_equal(masks[0], masks[1])
    assert np.array_equal(masks[0], masks[2])


@pytest.mark.parametrize(
    "header",
    [
        "path,x1,y1,x2,y2,class",
        "Filename,xmin,ymin,xmax,ymax,category,score",
        "image,confidence,left,top,right,bottom,label",
    ],
)
def test_columns_may_have_the_names_of_detectors(tmp_path: Path, header: str) -> None:
    path, has_score = tmp_path / "boxes.csv", "confidence" in header
    box = "17,27,63,73"
    path.write_text(f"{header}\na.png,{f'0.9,{box}' if has_score else box},cup,0.9\n")

    (row,) = read_prompt_file(str(path)).of("a.png")
    ((name, same),) = read_manifest(str(path))

    assert (row.box, row.label) == (same.box, same.label) == (BOX, "cup")
    assert name == "a.png"


def test_corners_named_here_are_not_renamed(tmp_path: Path) -> None:
    path = tmp_path / "boxes.jsonl"
    path.write_text('{"path": "a.png", "x0": 17, "y0": 27, "x1": 63, "y1": 73, "score": 1}\n')

    ((_, row),) = read_manifest(str(path))

    assert row.box == BOX


@pytest.mark.usefixtures("photos")
def test_classes_grow_in_the_order_of_labels(samgraph: Run) -> None:
    Path("boxes.csv").write_text(
        "path,box,label\na.png,17 27 63 73,cup\nb.png,100 70 130 100,dog\nb.png,17 27 63 73,cup\n"
    )

    done = samgraph(
        "segment", "photos", "--prompts", "boxes.csv", "--format", "yolo", "-o", "labels/"
    )

    assert done.code == 0, done.err
    assert Path("labels/classes.txt").read_text() == "cup\ndog\n"
    lines = Path("labels/b.txt").read_text().splitlines()
    assert [line.split()[0] for line in lines] == ["1", "0"]


@pytest.mark.usefixtures("photos")
def test_prompts_of_images_that_were_not_given_are_refused(samgraph: Run) -> None:
    Path("boxes.csv").write_text("path,box\nx/a.png,17 27 63 73\n")

    other = samgraph("segment", "photos", "--prompts", "boxes.csv", "-o", "out/")
    both = samgraph("segment", "photos", "--prompts", "boxes.csv", "--point", "3,4", "-o", "out/")
    none = samgraph("segment", "photos", "-o", "out/")

    assert (other.code, both.code, none.code) == (2, 2, 2)
    assert "line 2 of `boxes.csv` is of an image that was not given" in other.err
    assert "--prompts" in none.err
    assert not Path("out").exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no header"),
        ("a.png,1,2,3,4\n", "no header"),
        ("path,box,colour\n", "column `colour`"),
        ("path,x0,x0,y0,x1,y1\na.png,1,9,2,3,4\n", "two columns `x0`"),
        ("path,box\n", "has no prompt"),
        ("path,box\na.png,1 2 3\n", "line 2 .* four numbers"),
        ("path,box\na.png,1 2 3 x\n", "no number"),
        ("path,points\na.png,1 2 3\n", "pairs"),
        ("path,box\na.png,\n", "no box and no point"),
        ("path,box\n,1 2 3 4\n", "which image"),
        ('path,box\na.png,"1 2\n', "line .* four numbers|not CSV"),
    ],
)
def test_a_file_that_makes_no_sense_says_where(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "boxes.csv"
    path.write_text(text)

    with pytest.raises(PromptError, match=message):
        read_prompt_file(str(path))


@pytest.mark.parametrize(
    "changed",
    [
        {"categories": 5},
        {"categories": [5]},
        {"images": {}},
        {"annotations": [[]]},
        {"images": [1]},
    ],
)
def test_a_coco_file_of_other_kinds_is_refused(tmp_path: Path, changed: dict[str, object]) -> None:
    path = tmp_path / "boxes.json"
    image = {"id": 1, "file_name": "a.png"}
    document = {"images": [image], "annotations": [{"image_id": 1, "bbox": [1, 2, 3, 4]}]}
    path.write_text(json.dumps({**document, **changed}))

    with pytest.raises((PromptError, ImageError), match=r"boxes\.json"):
        read_prompt_file(str(path))


def test_a_category_of_another_kind_is_no_label(tmp_path: Path) -> None:
    path = tmp_path / "boxes.json"
    box = {"image_id": 1, "bbox": [1, 2, 3, 4], "category_id": [1]}
    images = [{"id": 1, "file_name": "a.png"}]
    path.write_text(json.dumps({"images": images, "annotations": [box]}))

    assert [row.label for row in read_prompt_file(str(path)).rows] == [None]


def test_a_row_outside_its_image_says_which(tmp_path: Path) -> None:
    path = tmp_path / "boxes.csv"
    path.write_text("path,box\na.png,1 2 900 4\n")

    (row,) = read_prompt_file(str(path)).of("photos/a.png")
    with pytest.raises(PromptError, match=r"line 2 .*outside the image"):
        row.prompt((120, 160))


@pytest.mark.usefixtures("folder")
def test_a_label_on_the_command_line_belongs_to_its_box(samgraph: Run) -> None:
    boxes = ("--box", "17,27,63,73", "--box", "100,70,130,100")
    labels = ("--label", "cup", "--label", "dog")

    pair = samgraph("segment", "a.png", *boxes, *labels, "-o", "a.json")
    every = samgraph("segment", "a.png", *boxes, *labels, "--all", "-o", "all.json")
    wrong = samgraph("segment", "a.png", *boxes, *labels, "--label", "cat", "-o", "b.json")

    assert (pair.code, every.code, wrong.code) == (0, 0, 2)
    assert [s.label for s in read_coco("a.json")[0].segments] == ["cup", "dog"]
    assert [s.label for s in read_coco("all.json")[0].segments] == ["cup"] * 3 + ["dog"] * 3
    assert "one --label for each object" in wrong.err

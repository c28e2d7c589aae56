from pathlib import Path

import numpy as np
import pytest

from samgraph.errors import ImageError, OutputError
from samgraph.formats import Segment, SegmentedImage, read_yolo, write_yolo
from samgraph.formats.yolo import yolo_lines
from tests.formats.scenes import ring_scene, same_masks, scene
from tests.media.shapes import picture


def test_segments_come_back_with_holes_and_parts(tmp_path: Path) -> None:
    write_yolo(tmp_path, [scene(), ring_scene()])

    back = read_yolo(tmp_path / "cat.txt", (40, 40))

    assert same_masks(back, scene())
    assert same_masks(read_yolo(tmp_path / "ring.txt", (5, 8)), ring_scene())
    assert [segment.label for segment in back.segments] == ["cat", "dog <&> \N{SNOWMAN}"]
    assert (tmp_path / "classes.txt").read_text(encoding="utf-8").splitlines()[2] == "ring"


def test_a_line_worked_out_by_hand() -> None:
    middle = Segment.from_mask(picture("....", ".##.", ".##.", "...."), label="b")
    image = SegmentedImage("a.png", (4, 4), (middle,))

    assert yolo_lines(image, ["a", "b"]) == ["1 0.25 0.25 0.75 0.25 0.75 0.75 0.25 0.75"]


def test_large_images_lose_no_pixel_to_rounding(tmp_path: Path) -> None:
    mask = np.zeros((37, 7001), np.bool_)
    mask[5:9, 1000:6999:3] = True
    mask[8] = True
    image = SegmentedImage("a.png", mask.shape, (Segment.from_mask(mask),))

    write_yolo(tmp_path, [image])

    assert same_masks(read_yolo(tmp_path / "a.txt", (37, 7001)), image)


def test_classes_that_are_not_listed_are_named_by_their_number(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("\n12 0 0 1 0 1 1\n")

    (segment,) = read_yolo(path, (4, 4)).segments

    assert segment.label == "12"
    assert segment.area == 10


def test_an_unknown_class_and_damaged_lines_are_errors(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="`cat` is not one of the classes"):
        write_yolo(tmp_path, [scene()], classes=["car"])
    path = tmp_path / "a.txt"
    for line in ("x 0 0 1 0 1 1", "1 0 0 1 0 1", "1 0 0 1 0 nan 1", "1 0 0", "1", "1 a b c d e f"):
        path.write_text(line)
        with pytest.raises(ImageError):
            read_yolo(path, (4, 4))

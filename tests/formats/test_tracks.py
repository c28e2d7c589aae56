"""Formats of tracked videos: COCO for videos, MOT and MOTS, written and read back."""

import json
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from samgraph.errors import ImageError
from samgraph.formats import FORMATS, Segment, SegmentedImage, read_coco, read_mots
from samgraph.formats.reading import read_images

SIZE_HW = (12, 20)


def mask(left: int, top: int) -> npt.NDArray[np.bool_]:
    found = np.zeros(SIZE_HW, np.bool_)
    found[top : top + 4, left : left + 5] = True
    return found


def tracked() -> list[SegmentedImage]:
    """Frames 3 and 5; object 7 on both, object 2 on the second alone."""
    cat = Segment.from_mask(mask(1, 2), label="cat", score=0.5, object_id=7)
    moved = Segment.from_mask(mask(3, 2), label="cat", score=0.75, object_id=7)
    dog = Segment.from_mask(mask(10, 6), label="dog", score=1.0, object_id=2)
    away = Segment.from_mask(np.zeros(SIZE_HW, np.bool_), label="dog", score=0.1, object_id=2)
    return [
        SegmentedImage("00003.png", SIZE_HW, (cat, away), index=3),
        SegmentedImage("00005.png", SIZE_HW, (moved, dog), index=5),
    ]


def test_mot_has_a_line_per_box_and_counts_from_1() -> None:
    assert FORMATS["mot"].encode(tracked()).decode().splitlines() == [
        "4,7,2,3,5,4,0.5,-1,-1,-1",
        "6,7,4,3,5,4,0.75,-1,-1,-1",
        "6,2,11,7,5,4,1,-1,-1,-1",
    ]


def test_mots_is_read_back(tmp_path: Path) -> None:
    file = tmp_path / "tracks.txt"
    file.write_bytes(FORMATS["mots"].encode(tracked()))

    first, second = read_mots(file)

    assert file.read_text().split()[:5] == ["3", "7", "1", "12", "20"]
    assert (first.name, first.index, second.index) == ("00003.png", 3, 5)
    assert [segment.object_id for segment in second.segments] == [7, 2]
    assert [segment.label for segment in second.segments] == ["class 1", "class 2"]
    np.testing.assert_array_equal(second.segments[1].mask, mask(10, 6))
    assert [image.segments for image in read_images(file)] == [first.segments, second.segments]


def test_coco_for_videos_is_coco_with_instances(tmp_path: Path) -> None:
    file = tmp_path / "annotations.json"
    file.write_bytes(FORMATS["coco-vid"].encode(tracked()))

    document = json.loads(file.read_text())
    images = read_coco(file)

    assert [video["length"] for video in document["videos"]] == [2]
    assert [image["frame_id"] for image in document["images"]] == [3, 5]
    assert {image["video_id"] for image in document["images"]} == {1}
    assert [found["instance_id"] for found in document["annotations"]] == [7, 2, 7, 2]
    assert all(found["video_id"] == 1 for found in document["annotations"])
    assert [segment.object_id for segment in images[1].segments] == [7, 2]
    np.testing.assert_array_equal(images[1].segments[0].mask, mask(3, 2))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "holds no tracks"),
        ("1,2,3,4,5,6,1,-1,-1,-1", "line 1 of .* is not MOTS"),
        ("0 1 1 12 20 x y", "is not MOTS"),
        ("0 1 1 0 20 aa", "impossible size"),
        ("0 1 1 12 20 \x7f\x7f", "."),
        ("0 1 1 12 20 0", "."),
        ("9999999999 1 1 12 20 `7", "impossible frame"),
        ("-1 1 1 12 20 `7", "is not MOTS"),
    ],
)
def test_what_is_not_mots_is_refused(text: str, sentence: str, tmp_path: Path) -> None:
    file = tmp_path / "tracks.txt"
    file.write_text(text)

    with pytest.raises(ImageError, match=sentence):
        read_mots(file)

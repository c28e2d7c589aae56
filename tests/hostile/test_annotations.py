"""Annotation files from people who mean harm: an `ImageError` or what is in them, within bounds."""

import base64
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import samgraph
from samgraph.errors import ImageError
from samgraph.formats import (
    read_coco,
    read_cvat,
    read_davis_frame,
    read_label_studio,
    read_labelme,
    read_mots,
    read_yolo,
)
from samgraph.formats.records import Effort
from samgraph.media.image.reading import encode_image
from tests.peak import peak_bytes

SOURCE = Path(samgraph.__file__).parents[1]
SIDE = 16_384
ALL = [[0, 0], [SIDE, 0], [SIDE, SIDE], [0, SIDE]]
FLAT = [float(n) for corner in ALL for n in corner]
MOST_BYTES = 2 << 30  # the largest mask takes 268 MB, and three times that while it is filled
MOST_SECONDS = 20.0

Reader = Callable[[str], object]
READERS: dict[str, Reader] = {
    "coco": read_coco,
    "labelme": read_labelme,
    "label-studio": read_label_studio,
    "cvat": read_cvat,
    "mots": read_mots,
    "yolo": lambda path: read_yolo(path, (SIDE, SIDE)),
}


def labelme(shapes: list[dict[str, Any]], side: int = SIDE) -> str:
    head = {"imageHeight": side, "imageWidth": side, "imagePath": "a"}
    return json.dumps({**head, "shapes": shapes})


def polygon(group: int | None = None) -> dict[str, Any]:
    return {"shape_type": "polygon", "label": "a", "points": ALL, "group_id": group}


def region(shape: dict[str, Any], kind: str) -> dict[str, Any]:
    size = {"original_width": SIDE, "original_height": SIDE}
    return {"type": kind, "value": {**shape, kind: ["a"]}, **size}


def documents() -> dict[str, tuple[str, str]]:
    """The reader and the text of small files that ask for many of the largest masks."""
    coco = {
        "images": [{"id": 1, "file_name": "a", "height": SIDE, "width": SIDE}],
        "categories": [{"id": 1, "name": "a"}],
        "annotations": [{"image_id": 1, "category_id": 1, "segmentation": [FLAT]}] * 300,
    }
    percent = [[0, 0], [100, 0], [100, 100], [0, 100]]
    spikes = [[x / 7 % SIDE, (x % 2) * SIDE] for x in range(20_000)]
    points = ";".join(f"{x},{y}" for x, y in ALL)
    shape = f'<polygon label="a" points="{points}"/>'
    return {
        "labelme of 28 shapes": ("labelme", labelme([polygon() for _ in range(28)])),
        "labelme of one group": ("labelme", labelme([polygon(7) for _ in range(300)])),
        "labelme of spikes": ("labelme", labelme([{**polygon(), "points": spikes}])),
        "coco": ("coco", json.dumps(coco)),
        "label studio": ("label-studio", json.dumps([{
            "data": {"image": "a"},
            "annotations": [{"result": [region({"points": percent}, "polygonlabels")] * 300}],
        }])),
        "cvat": ("cvat", f'<annotations><image name="a" width="{SIDE}" height="{SIDE}">'
                 + shape * 300 + "</image></annotations>"),
        "yolo": ("yolo", "0 0 0 1 0 1 1 0 1\n" * 3000),
    }  # fmt: skip


def child(reader: str, path: str) -> None:
    """Read a file and print what came of it, the seconds and the highest memory."""
    start = time.process_time()
    try:
        READERS[reader](path)
        outcome = "read"
    except ImageError as error:
        outcome = f"ImageError {error}"
    peak = peak_bytes()
    print(json.dumps([outcome, time.process_time() - start, peak]))


@pytest.mark.parametrize("name", sorted(documents()))
def test_a_small_file_cannot_ask_for_endless_masks(name: str, tmp_path: Path) -> None:
    reader, text = documents()[name]
    path = tmp_path / "annotations"
    path.write_text(text, encoding="utf-8")

    done = subprocess.run(
        [sys.executable, __file__, reader, str(path)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": f"{SOURCE}:{SOURCE.parent}"},
        timeout=120,
        check=False,
    )

    assert done.returncode == 0, done.stderr[-2000:]
    outcome, seconds, peak = json.loads(done.stdout)
    assert "cover far more than a file of its length describes" in outcome
    assert seconds < MOST_SECONDS
    assert peak < MOST_BYTES


@pytest.mark.parametrize("name", sorted(READERS))
def test_what_is_no_file_is_refused_at_once(name: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(1 << 40)
    (tmp_path / "endless").symlink_to("/dev/zero")

    start = time.monotonic()
    for target, message in (
        ("pipe", "a pipe"),
        ("endless", "a device"),
        ("sparse", "is too large"),
        (".", "a folder"),
        ("none", "no such file"),
    ):
        with pytest.raises(ImageError, match=message):
            READERS[name](str(tmp_path / target))

    assert time.monotonic() - start < 1


@pytest.mark.parametrize("number", ["1" + "0" * 400, "9" * 4000, "1e999", "-Infinity", "NaN"])
def test_numbers_without_end_are_none(number: str, tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    text = labelme([{**polygon(7), "score": 0.5}], side=20)
    path.write_text(text.replace("0.5", number))
    assert read_labelme(path).segments[0].score is None

    coco = (
        '{"images": [{"id": 1, "file_name": "a", "height": 9, "width": 9}], "categories": [],'
        '"annotations": [{"image_id": 1, "category_id": 1, "segmentation": [[0, 0, 5, 0, 5, 5]],'
        '"score": N, "stability_score": N, "track_id": N, "point_coords": [[N, N]]}]}'
    )
    path.write_text(coco.replace("N", number))
    (found,) = read_coco(path)[0].segments
    assert (found.score, found.stability, found.object_id, found.point_xy) == (None,) * 4


@pytest.mark.parametrize("size", [(2**28, 1), (65_536, 4), (0, 5), (10**30, 10**30)])
def test_sizes_that_no_image_has_are_refused(size: tuple[int, int], tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    document = json.loads(labelme([polygon()]))
    document["imageHeight"], document["imageWidth"] = size
    path.write_text(json.dumps(document))

    with pytest.raises(ImageError, match="impossible size"):
        read_labelme(path)


def test_shapes_of_one_segment_are_joined_whatever_they_are(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    crop = base64.b64encode(encode_image(np.ones((2, 3), np.uint8))).decode()
    mask = {"shape_type": "mask", "label": "a", "points": [[1, 5], [3, 6]], "mask": crop}
    square = {"shape_type": "polygon", "label": "a", "points": [[6, 6], [8, 6], [8, 8], [6, 8]]}
    expected = np.zeros((9, 9), np.bool_)
    expected[5:7, 1:4] = True
    path.write_text(labelme([mask], side=9))
    assert np.array_equal(read_labelme(path).segments[0].mask, expected)

    expected[6:8, 6:8] = True
    path.write_text(labelme([{**one, "group_id": 4} for one in (mask, square)], side=9))
    (found,) = read_labelme(path).segments

    assert np.array_equal(found.mask, expected)
    assert found.object_id == 4


def test_a_frame_of_many_objects_is_bounded(tmp_path: Path) -> None:
    """A few kilobytes whose rows have all the numbers there are, at 36 megapixels."""
    rows = np.arange(6000, dtype=np.int64) % 256
    path = tmp_path / "00000.png"
    labels = np.broadcast_to(rows.astype(np.uint8)[:, None], (6000, 6000))
    path.write_bytes(encode_image(np.ascontiguousarray(labels)))

    start = time.process_time()
    with pytest.raises(ImageError, match="cover far more"):
        read_davis_frame(path)

    assert time.process_time() - start < 10


def test_longer_files_may_describe_more(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(bytes(1 << 20))
    effort = Effort(path)

    for _ in range(60):
        effort.spend(1 << 28)
    with pytest.raises(ImageError, match="cover far more"):
        effort.spend(1 << 40)


if __name__ == "__main__":
    child(sys.argv[1], sys.argv[2])

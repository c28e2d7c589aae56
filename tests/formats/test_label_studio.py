import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from samgraph.errors import ImageError
from samgraph.formats import read_label_studio, write_label_studio
from samgraph.formats.label_studio import decode_brush, encode_brush, label_studio_result
from tests.formats.scenes import ring_scene, same_masks, scene
from tests.media.shapes import Mask, masks, picture


@settings(deadline=None)
@given(masks())
def test_a_brush_comes_back(mask: Mask) -> None:
    assert np.array_equal(decode_brush(encode_brush(mask), mask.shape), mask)


def test_a_brush_worked_out_by_hand() -> None:
    # 8 values | 8 bits each, sizes 3 4 8 16 | repeat, size 0, 4 of 255 | repeat, size 0, 4 of 0
    # 00001000 | 00111 0010 0011 0111 1111   | 1 00 011 11111111        | 1 00 011 00000000
    assert encode_brush(picture("#.")) == [0, 0, 0, 8, 57, 27, 252, 127, 241, 128, 0]


def test_a_brush_begins_as_a_published_export_of_that_size() -> None:
    # The head of a Label Studio export of a 3332 x 2527 microscope image (cell_benchmark).
    published = [2, 1, 233, 240, 57, 27, 255, 255, 255, 0, 255, 255, 224, 31, 255, 252, 3, 255]

    brush = encode_brush(np.zeros((2527, 3332), np.bool_))

    assert brush[: len(published)] == published


def test_values_that_are_not_repeated_are_read() -> None:
    # 4 values | header | not repeated, size 0, 4 values: 255 255 255 255
    bits = f"{4:032b}" + "00111" + "0010001101111111" + "0" + "00" + "011" + "11111111" * 4
    padded = bits.ljust(-(-len(bits) // 8) * 8, "0")
    data = [int(padded[i : i + 8], 2) for i in range(0, len(padded), 8)]

    assert decode_brush(data, (1, 1)).tolist() == [[True]]


@pytest.mark.parametrize("polygons", [False, True])
def test_tasks_come_back(polygons: bool, tmp_path: Path) -> None:
    write_label_studio(tmp_path / "tasks.json", [scene(), ring_scene()], polygons=polygons)

    first, second = read_label_studio(tmp_path / "tasks.json")

    assert same_masks(first, scene())
    assert same_masks(second, ring_scene())
    assert first.name == "street/cat.jpg"
    assert (first.segments[0].label, first.segments[0].score) == ("cat", 0.75)


def test_polygons_are_in_percent() -> None:
    (region,) = label_studio_result(ring_scene(), polygons=True)

    points = np.array(region["value"]["points"])
    assert region["type"] == "polygonlabels"
    assert region["value"]["polygonlabels"] == ["ring"]
    assert (region["original_width"], region["original_height"]) == (8, 5)
    assert points.min(axis=0).tolist() == [12.5, 20.0]
    assert points.max(axis=0).tolist() == [87.5, 100.0]


@settings(deadline=None)
@given(st.binary(max_size=60))
def test_any_bytes_are_a_mask_or_an_error(data: bytes) -> None:
    for brush in (list(data), encode_brush(picture("#."))[:7] + list(data)):
        try:
            mask = decode_brush(brush, (1, 2))
        except ImageError:
            continue
        assert mask.shape == (1, 2)


def test_a_task_of_two_sizes_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "tasks.json"
    regions = [*label_studio_result(scene()), *label_studio_result(ring_scene())]
    path.write_text(json.dumps([{"data": {"image": "a"}, "annotations": [{"result": regions}]}]))

    with pytest.raises(ImageError, match="gives `a` two sizes"):
        read_label_studio(path)
    path.write_text("{}")
    with pytest.raises(ImageError, match="is not a list of tasks"):
        read_label_studio(path)

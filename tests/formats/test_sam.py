import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pycocotools import mask as coco_mask

from samgraph.errors import ImageError, OptionError
from samgraph.formats import from_sam_dicts, to_sam_dicts, write_sam
from samgraph.formats.sam import Mode
from tests.formats.scenes import RING, ring_scene, scene

# pycocotools 2.0.11 with numpy 2.4.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")


def test_the_dicts_are_those_of_the_automatic_mask_generator() -> None:
    record = to_sam_dicts(scene().segments)[0]

    assert set(record) >= {
        "segmentation",
        "area",
        "bbox",
        "predicted_iou",
        "point_coords",
        "stability_score",
        "crop_box",
    }
    assert record["segmentation"].dtype == np.bool_
    assert record["predicted_iou"] == 0.75
    assert record["stability_score"] == 0.5
    assert record["point_coords"] == [[4.5, 6.0]]
    assert record["crop_box"] == [0.0, 0.0, 20.0, 30.0]


def test_the_box_reaches_from_the_first_pixel_to_the_last() -> None:
    (record,) = to_sam_dicts(ring_scene().segments)

    assert record["bbox"] == [1, 1, 5, 3]
    assert record["crop_box"] == [0, 0, 8, 5]
    assert record["area"] == 12


def test_masks_have_the_three_encodings_of_the_reference() -> None:
    segments = ring_scene().segments

    (listed,) = to_sam_dicts(segments, "uncompressed_rle")
    (packed,) = to_sam_dicts(segments, "coco_rle")

    # Columns of the ring: 6 clear, then 1-3 of column 1, and so on.
    assert listed["segmentation"]["counts"][:4] == [6, 3, 2, 1]
    assert np.array_equal(coco_mask.decode(packed["segmentation"]).astype(bool), RING)
    assert isinstance(packed["segmentation"]["counts"], str)


@pytest.mark.parametrize("mode", ["binary_mask", "uncompressed_rle", "coco_rle"])
def test_segments_come_back_from_every_encoding(mode: Mode) -> None:
    assert from_sam_dicts(to_sam_dicts(scene().segments, mode))[0] == scene().segments[0]


def test_the_file_is_json(tmp_path: Path) -> None:
    write_sam(tmp_path / "masks.json", [scene(), ring_scene()])

    document = json.loads((tmp_path / "masks.json").read_text())

    assert [len(image["masks"]) for image in document] == [2, 1]
    assert from_sam_dicts(document[0]["masks"])[0] == scene().segments[0]


def test_other_things_are_refused() -> None:
    with pytest.raises(OptionError, match="unknown mask encoding"):
        to_sam_dicts([], "png")  # type: ignore[arg-type]  # that is what is tested
    with pytest.raises(ImageError, match="not one of SAM's masks"):
        from_sam_dicts([{"segmentation": "x"}])


@pytest.mark.parametrize("dicts", [None, 3, {1, 2}, [None], [0.5], "ab", [[]], {"segmentation": 1}])
def test_what_is_no_list_of_dicts_is_refused(dicts: Any) -> None:
    with pytest.raises(ImageError, match="SAM's masks"):
        from_sam_dicts(dicts)

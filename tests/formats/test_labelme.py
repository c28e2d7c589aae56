import base64
import io
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from samgraph.errors import ImageError
from samgraph.formats import Segment, SegmentedImage, read_labelme, write_labelme
from samgraph.formats.labelme import labelme_document
from tests.formats.scenes import RING, ring_scene, same_masks, scene


@pytest.mark.parametrize("polygons", [False, True])
def test_everything_known_comes_back(polygons: bool, tmp_path: Path) -> None:
    write_labelme(tmp_path, [scene(), ring_scene()], polygons=polygons)

    back = read_labelme(tmp_path / "cat.json")

    assert same_masks(back, scene())
    assert same_masks(read_labelme(tmp_path / "ring.json"), ring_scene())
    assert back.name == "street/cat.jpg"
    assert back.segments[0].label == "cat"
    assert back.segments[0].score == 0.75
    assert [segment.object_id for segment in back.segments] == [3, 7]


def test_a_mask_is_a_crop_from_its_first_to_its_last_pixel() -> None:
    (shape,) = labelme_document(ring_scene())["shapes"]

    assert shape["shape_type"] == "mask"
    assert shape["points"] == [[1.0, 1.0], [6.0, 4.0]]
    with Image.open(io.BytesIO(base64.b64decode(shape["mask"]))) as image:
        assert np.array_equal(np.array(image), RING[1:5, 1:7].astype(np.uint8))


def test_the_file_has_the_fields_labelme_requires() -> None:
    document = json.loads(json.dumps(labelme_document(ring_scene(), polygons=True)))

    assert {"version", "flags", "shapes", "imagePath", "imageData"} <= set(document)
    assert (document["imageHeight"], document["imageWidth"]) == (5, 8)
    for shape in document["shapes"]:
        assert {"label", "points", "group_id", "shape_type", "flags", "description"} <= set(shape)
        assert shape["shape_type"] == "polygon"
    assert len({shape["group_id"] for shape in document["shapes"]}) == 1


def test_an_empty_mask_has_no_shape() -> None:
    empty = Segment.from_mask(np.zeros((5, 8), np.bool_))

    assert labelme_document(SegmentedImage("a.png", (5, 8), (empty,)))["shapes"] == []


def test_other_shapes_are_ignored(tmp_path: Path) -> None:
    document = labelme_document(ring_scene())
    circle = {"label": "x", "shape_type": "circle", "points": [[1, 1], [2, 2]]}
    path = tmp_path / "a.json"
    path.write_text(json.dumps({**document, "shapes": [circle, *document["shapes"]]}))

    assert same_masks(read_labelme(path), ring_scene())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"points": [[6, 1], [9, 4]]}, "reaches out of its image"),
        ({"points": [[-1, 1], [4, 4]]}, "reaches out of its image"),
        ({"points": [[1, 1, 1]]}, "has a damaged mask|reaches out"),
        ({"points": ["x"]}, "has a damaged mask"),
        ({"mask": "!!!"}, "has a damaged mask"),
        ({"mask": "AAAA"}, "not an image of a format"),
        ({"mask": None}, "no usable `mask`"),
        ({"shape_type": "polygon", "points": [[0, 0]]}, "three finite corners"),
    ],
)
def test_a_damaged_shape_is_one_clear_error(
    change: dict[str, object], message: str, tmp_path: Path
) -> None:
    document = labelme_document(ring_scene())
    path = tmp_path / "a.json"
    path.write_text(json.dumps({**document, "shapes": [document["shapes"][0] | change]}))

    with pytest.raises(ImageError, match=message):
        read_labelme(path)

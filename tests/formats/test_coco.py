import json
from pathlib import Path

import numpy as np
import pytest
from pycocotools import mask as coco_mask

from samgraph.errors import ImageError
from samgraph.formats import coco_document, read_coco, write_coco
from tests.formats.scenes import RING, ring_scene, same_masks, scene

# pycocotools 2.0.11 with numpy 2.4.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")


def test_everything_known_comes_back(tmp_path: Path) -> None:
    images = [scene(), ring_scene()]

    write_coco(tmp_path / "out.json", images)
    back = read_coco(tmp_path / "out.json")

    assert [image.name for image in back] == ["street/cat.jpg", "ring.png"]
    assert all(same_masks(*pair) for pair in zip(images, back, strict=True))
    first = back[0].segments[0]
    assert (first.label, first.score, first.stability) == ("cat", 0.75, 0.5)
    assert (first.object_id, first.point_xy) == (3, (4.5, 6.0))


def test_polygons_come_back_with_their_holes(tmp_path: Path) -> None:
    write_coco(tmp_path / "out.json", [scene(), ring_scene()], polygons=True)

    back = read_coco(tmp_path / "out.json")

    assert same_masks(back[0], scene())
    assert same_masks(back[1], ring_scene())


def test_the_document_is_what_pycocotools_reads() -> None:
    document = json.loads(json.dumps(coco_document([ring_scene()])))

    (annotation,) = document["annotations"]
    assert np.array_equal(coco_mask.decode(annotation["segmentation"]).astype(bool), RING)
    assert annotation["bbox"] == [1, 1, 6, 4]
    assert annotation["area"] == 12
    assert annotation["iscrowd"] == 0
    assert document["categories"] == [{"id": 1, "name": "ring"}]
    assert document["images"] == [{"id": 1, "file_name": "ring.png", "height": 5, "width": 8}]


def test_pycocotools_fills_our_polygons_almost_identically() -> None:
    image = scene(size=200)
    document = coco_document([image], polygons=True)

    for annotation, segment in zip(document["annotations"], image.segments, strict=True):
        encoded = coco_mask.merge(coco_mask.frPyObjects(annotation["segmentation"], 200, 200))
        theirs = coco_mask.decode(encoded).astype(bool)
        overlap = (theirs & segment.mask).sum() / (theirs | segment.mask).sum()
        assert overlap > 0.97


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"annotations": [{"image_id": 9, "category_id": 1}]}, "annotation of image 9"),
        ({"annotations": 4}, "no usable `annotations`"),
        ({"images": [{"id": 1, "file_name": "a", "height": -1, "width": 4}]}, "impossible size"),
        (
            {"images": [{"id": 1, "file_name": "a", "height": 10**6, "width": 10**6}]},
            "impossible size",
        ),
    ],
)
def test_a_damaged_file_is_one_clear_error(
    change: dict[str, object], message: str, tmp_path: Path
) -> None:
    path = tmp_path / "out.json"
    path.write_text(json.dumps(coco_document([ring_scene()]) | change))

    with pytest.raises(ImageError, match=message):
        read_coco(path)


def test_files_that_are_no_json_are_named(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    for content, message in [(b"{", "is not JSON"), (b"\xff\xfe", "is not text"), (b"[]", "no us")]:
        path.write_bytes(content)
        with pytest.raises(ImageError, match=message):
            read_coco(path)
    path.write_text("[" * 100_000)
    with pytest.raises(ImageError, match="is not JSON"):
        read_coco(path)
    with pytest.raises(ImageError, match="cannot be read"):
        read_coco(tmp_path / "none.json")

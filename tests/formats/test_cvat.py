from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from samgraph.errors import ImageError
from samgraph.formats import Segment, SegmentedImage, cvat_points, read_cvat, write_cvat
from tests.formats.scenes import ring_scene, same_masks, scene
from tests.media.shapes import picture


def test_masks_come_back(tmp_path: Path) -> None:
    write_cvat(tmp_path / "out.xml", [scene(), ring_scene()])

    first, second = read_cvat(tmp_path / "out.xml")

    assert same_masks(first, scene())
    assert same_masks(second, ring_scene())
    assert first.name == "street/cat.jpg"
    assert [s.label for s in first.segments] == ["cat", "dog <&> \N{SNOWMAN}"]
    assert [s.object_id for s in first.segments] == [3, 7]


def test_polygons_cover_the_same_pixels(tmp_path: Path) -> None:
    write_cvat(tmp_path / "out.xml", [scene()], polygons=True)

    (back,) = read_cvat(tmp_path / "out.xml")

    for number, segment in zip((3, 7), scene().segments, strict=True):
        parts = [part.mask for part in back.segments if part.object_id == number]
        assert np.array_equal(np.logical_or.reduce(parts), segment.mask)


def test_runs_go_along_the_rows_of_the_crop_and_the_box_is_inclusive(tmp_path: Path) -> None:
    # The crop is ## / .#: no background, two set, one not, one set.
    segment = Segment.from_mask(picture("....", ".##.", "..#."), label="corner")

    write_cvat(tmp_path / "out.xml", [SegmentedImage("a.png", (3, 4), (segment,))])

    assert cvat_points(segment) == [0, 2, 1, 1, 1, 1, 2, 2]
    mask = ElementTree.parse(tmp_path / "out.xml").getroot().find("image/mask")
    assert mask is not None
    assert mask.attrib == {
        "label": "corner",
        "source": "auto",
        "occluded": "0",
        "rle": "0, 2, 1, 1",
        "left": "1",
        "top": "1",
        "width": "2",
        "height": "2",
        "z_order": "0",
    }


def test_characters_that_xml_cannot_hold_are_replaced(tmp_path: Path) -> None:
    write_cvat(tmp_path / "out.xml", [SegmentedImage("a\0\x1b.png", (3, 4))])

    assert read_cvat(tmp_path / "out.xml")[0].name == "a??.png"


IMAGE = '<image id="0" name="a" width="4" height="3">{}</image>'
BROKEN = '<polygon points="1,1;2"/>'
MASK = '<mask label="x" rle="{}" left="{}" top="0" width="2" height="2"/>'


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("<a>", "is not XML"),
        ("<a/>", "is not CVAT's"),
        ('<!DOCTYPE a [<!ENTITY b "c">]><annotations/>', "declares a document type"),
        (f"<annotations>{IMAGE.format(MASK.format('1, 2', 0))}</annotations>", "does not cover"),
        (f"<annotations>{IMAGE.format(MASK.format('x', 0))}</annotations>", "not numbers"),
        (f"<annotations>{IMAGE.format(MASK.format('4', 3))}</annotations>", "reaches out"),
        (f"<annotations>{IMAGE.format(MASK.format('4', -1))}</annotations>", "reaches out"),
        (f"<annotations>{IMAGE.format(BROKEN)}</annotations>", "polygon"),
        ('<annotations><image name="a" width="x" height="3"/></annotations>', "usable `width`"),
        ('<annotations><image name="a" width="0" height="3"/></annotations>', "impossible size"),
        (
            '<annotations><image name="a" width="99999999" height="99999999"/></annotations>',
            "impossible size",
        ),
    ],
)
def test_a_damaged_file_is_one_clear_error(body: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "out.xml"
    path.write_text(body)

    with pytest.raises(ImageError, match=message):
        read_cvat(path)

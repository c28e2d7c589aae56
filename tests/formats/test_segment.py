import json

import numpy as np
import pytest

from samgraph.errors import OutputError
from samgraph.formats import Segment, SegmentedImage, label_image
from samgraph.formats.segment import file_stems, labels_of
from tests.formats.scenes import RING, ring_scene, scene


def test_a_segment_knows_its_box_and_area_from_its_mask() -> None:
    score, number = np.array([0.5], np.float32)[0], np.arange(5)[4]
    segment = Segment.from_mask(RING, score=score, object_id=number)

    assert segment.area == 12
    assert segment.box_xyxy == (1, 1, 7, 5)
    assert segment.size_hw == (5, 8)
    assert np.array_equal(segment.mask, RING)
    assert json.dumps([segment.score, segment.object_id]) == "[0.5, 4]"


def test_a_segment_prints_without_its_runs() -> None:
    segment = Segment.from_mask(np.ones((3, 4), np.bool_), label="cup", score=0.5)

    assert "label='cup', score=0.5" in repr(segment)
    assert "counts" not in repr(segment)


def test_labels_are_in_order_of_first_use() -> None:
    unnamed = SegmentedImage("a", (5, 8), (Segment.from_mask(RING),))

    assert labels_of([ring_scene(), unnamed, ring_scene()]) == ["ring", "object"]


def test_segments_without_an_id_are_numbered_in_a_label_image() -> None:
    two = SegmentedImage("a", (5, 8), (Segment.from_mask(~RING), Segment.from_mask(RING)))

    assert np.array_equal(label_image(two), np.where(RING, 2, 1))
    assert not label_image(SegmentedImage("b", (2, 2))).any()


def test_file_names_are_the_last_part_of_a_name_and_different() -> None:
    assert file_stems([scene("a/b/../x.jpg"), scene("C:\\pictures\\y.png")]) == ["x", "y"]
    for names in (["x.jpg", "a/x.png"], [""], [".."], ["a\0b"]):
        with pytest.raises(OutputError, match="cannot have a file of its own"):
            file_stems(scene(name) for name in names)

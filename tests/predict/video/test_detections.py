"""Boxes of a detector on a stream: matched, corrected, begun and ended."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from samgraph.errors import OptionError, PromptError
from samgraph.predict.video.detections import match_boxes, read_detections
from samgraph.predict.video.sessions import resume
from samgraph.predict.video.stream import Stream, open_stream
from tests.predict.colour_model import ColourModel, Frame, draw

RED, BLUE, GREEN = (200, 40, 40), (40, 60, 200), (40, 200, 60)


def box(x: float, y: float, radius: float = 6) -> tuple[float, float, float, float]:
    return (x - radius, y - radius, x + radius + 1, y + radius + 1)


def picture(index: int, *, blue: bool = True) -> Frame:
    """A red disc that goes right, and a blue one that goes left."""
    discs: list[Any] = [(12 + index, 16, 6, RED)]
    if blue:
        discs.append((50 - index, 46, 6, BLUE))
    return draw(*discs)


def test_a_detector_and_a_stream_are_a_tracker() -> None:
    stream = open_stream(ColourModel())
    found = []
    for index in range(12):
        boxes = [box(50 - index, 46), box(12 + index, 16)]
        result = stream.step(picture(index), boxes=boxes[:: 1 if index % 2 else -1])
        found.append(result.objects)
        red = result.mask(1)
        assert red[16, 12 + index]
        assert not red[46, 50 - index]

    assert found == [(1, 2)] * 12
    assert [len(one.bank.prompted) for one in stream.states.values()] == [1, 1]


def test_an_object_without_detections_goes_on_and_ends() -> None:
    stream = open_stream(ColourModel(), end_after=4)
    stream.step(picture(0), boxes=[box(12, 16), box(50, 46)])
    stream.add(object="mine", points=[(50, 46)])

    found = [
        stream.step(picture(index), boxes=[box(12 + index, 16)]).objects for index in range(1, 7)
    ]

    assert found == [(1, 2, "mine")] * 3 + [(1, "mine")] * 3
    assert set(stream.numbers) == {1, "mine"}
    later = stream.step(picture(7), boxes=[box(19, 16), box(2, 60, 4)])
    assert later.objects == (1, "mine", 3), "an id is not given twice"


def test_steps_without_a_detector_do_not_count() -> None:
    stream = open_stream(ColourModel(), end_after=1)
    stream.step(picture(0), boxes=[box(12, 16)])
    for index in range(1, 5):
        assert stream.step(picture(index)).objects == (1,)

    assert stream.step(picture(5), boxes=[]).objects == ()


def test_ids_of_the_detector_win_and_correct() -> None:
    stream = open_stream(ColourModel())
    stream.step(picture(0), boxes=[box(12, 16)], ids=["car"])

    wrong = stream.step(picture(1), boxes=[box(49, 46)], ids=["car"])

    assert wrong.objects == ("car",)
    assert wrong.prompted.tolist() == [True]
    assert wrong.mask("car")[46, 49]


def test_an_absent_object_is_found_again_by_its_id() -> None:
    stream = open_stream(ColourModel())
    stream.step(picture(0), boxes=[box(12, 16), box(50, 46)], ids=[None, 7])
    for _ in range(3):
        stream.step(draw((40, 30, 5, GREEN)), boxes=[])
    assert not stream.step(draw((40, 30, 5, GREEN)), boxes=[]).present[1]

    again = stream.step(picture(9), boxes=[box(41, 46)], ids=[7])

    assert again.objects == (1, 7)
    assert again.mask(7)[46, 41]


def test_low_scores_confirm_and_do_not_begin() -> None:
    stream = open_stream(ColourModel(), min_score=0.5, end_after=1)
    stream.step(picture(0), boxes=[box(12, 16), box(50, 46)], scores=[0.9, 0.1])

    assert stream.objects == (1,)
    assert stream.step(picture(1), boxes=[box(13, 16)], scores=[0.1]).objects == (1,)


def test_a_stream_holds_so_many_objects_and_the_longest_missed_ends() -> None:
    stream = open_stream(ColourModel(), max_objects=2)
    stream.step(picture(0), boxes=[box(12, 16), box(50, 46), box(30, 30)])
    assert stream.objects == (1, 2)
    stream.step(picture(1), boxes=[box(13, 16)])

    result = stream.step(picture(2), boxes=[box(14, 16), box(10, 56, 4)])

    assert result.objects == (1, 3)


def test_memory_is_constant_however_often_an_object_is_corrected() -> None:
    stream = open_stream(ColourModel(), end_after=3)
    sizes = []
    for index in range(60):
        place = (12, 16) if index % 2 else (50, 46)
        stream.step(picture(0), boxes=[box(*place), box(30, 5 + index % 50, 3)], ids=["one", None])
        state = stream.states["one"]
        sizes.append((state.bank.nbytes, len(state.bank.prompted), len(stream.numbers)))

    assert max(sizes[30:]) <= max(sizes[:30])
    assert max(size[1] for size in sizes) <= 5
    assert len(stream.automatic.lifetimes) <= 5


def test_a_saved_stream_goes_on(tmp_path: Path) -> None:
    model, file = ColourModel(), tmp_path / "stream.safetensors"
    stream = open_stream(model, end_after=3, match_iou=0.4)
    stream.step(picture(0), boxes=[box(12, 16), box(50, 46)])
    stream.step(picture(1), boxes=[box(13, 16)])
    stream.save(file)

    again = resume(model, file)

    assert isinstance(again, Stream)
    assert again.options.end_after == 3
    assert again.automatic == stream.automatic
    for index in range(2, 6):
        boxes = [box(12 + index, 16)]
        one, other = (each.step(picture(index), boxes=boxes) for each in (stream, again))
        assert one.objects == other.objects


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"boxes": [(1, 2, 3)]}, "left, top, right, bottom each"),
        ({"boxes": [(9, 2, 3, 8)]}, "ends before it begins"),
        ({"boxes": [(1, 2, np.nan, 8)]}, "finite"),
        ({"boxes": ["a"]}, "are numbers"),
        ({"boxes": [(1, 2, 3, 8)], "ids": [1, 2]}, "not one of `ids`"),
        ({"boxes": [(1, 2, 3, 8)], "scores": []}, "not one of `scores`"),
        ({"boxes": [(1, 2, 3, 8)] * 2, "ids": [1, 1]}, "two boxes"),
        ({"boxes": [(1, 2, 3, 8)], "ids": [2.5]}, "named by a number or a text"),
        ({"ids": [1]}, "those of boxes"),
    ],
)
def test_bad_detections_leave_the_stream_as_it_was(given: dict[str, Any], sentence: str) -> None:
    stream = open_stream(ColourModel())
    stream.step(picture(0), boxes=[box(12, 16)])

    with pytest.raises(PromptError, match=sentence):
        stream.step(picture(1), **given)

    assert stream.position == 1
    assert stream.step(picture(1)).objects == (1,)


def test_options_of_detections_are_checked() -> None:
    with pytest.raises(OptionError, match="end_after"):
        open_stream(ColourModel(), end_after=0)
    with pytest.raises(OptionError, match="match_iou"):
        open_stream(ColourModel(), match_iou=2)


def test_boxes_are_clipped_and_those_outside_dropped() -> None:
    found = read_detections((20, 30), [(-5, -5, 10, 10), (40, 1, 50, 9), (5, 5, 5.5, 9)], [1, 2, 3])

    assert found.boxes.tolist() == [[0, 0, 10, 10]]
    assert found.ids == (1,)
    assert read_detections((20, 30), []).boxes.shape == (0, 4)


def test_the_largest_overlap_is_matched_first() -> None:
    objects = np.array([(0, 0, 10, 10), (4, 0, 14, 10)], np.float32)
    boxes = np.array([(3, 0, 13, 10), (0, 0, 10, 10), (30, 30, 40, 40)], np.float32)

    assert match_boxes(objects, boxes, 0.3) == {0: 1, 1: 0}
    assert match_boxes(objects[:1], boxes, 0.3) == {1: 0}, "an object has one detection"
    assert match_boxes(objects[:0], boxes, 0.3) == {}
    assert match_boxes(objects, boxes[:0], 0.3) == {}

"""Everything in a video: found, merged, followed, found again, and bounded."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from samgraph.errors import OptionError, PromptError
from samgraph.predict.video.discovery import (
    Discovery,
    overlap,
    read_discovery,
    sampled,
    thumbnail,
)
from samgraph.predict.video.sessions import resume
from samgraph.predict.video.stream import Stream, open_stream
from samgraph.predict.video.video import open_video
from tests.predict.colour_model import ColourModel, Frame, disc, draw

RED, ROSE, PINK = (200, 40, 40), (200, 80, 80), (200, 120, 120)
BLUE, GREEN = (40, 60, 200), (40, 200, 60)
GRID: dict[str, Any] = {"points_per_side": 12}


def entering(count: int = 24) -> list[Frame]:
    """A red disc throughout; a blue one from frame 5, a green one from frame 13 on."""
    frames = []
    for index in range(count):
        discs: list[Any] = [(10 + index, 14, 7, RED)]
        if index >= 5:
            discs.append((52, 10 + index, 7, BLUE))
        if index >= 13:
            discs.append((20, 54 - (index - 13), 7, GREEN))
        frames.append(draw(*discs))
    return frames


def test_new_things_are_found_as_they_enter_and_ids_last() -> None:
    video = open_video(ColourModel(), entering())

    results = list(video.everything(every=4, change=0, **GRID))

    objects = [result.objects for result in results]
    assert objects[:8] == [(1,)] * 8
    assert objects[8:16] == [(1, 2)] * 8
    assert objects[16:] == [(1, 2, 3)] * 8
    for result in results:
        np.testing.assert_array_equal(result.mask(1), disc(10 + result.index, 14, 7))
        if result.index >= 8:
            np.testing.assert_array_equal(result.mask(2), disc(52, 10 + result.index, 7))
    assert [result.index for result in results] == list(range(24))
    assert [bool(result.prompted.any()) for result in results][:9] == [True] + [False] * 7 + [True]


def test_a_change_of_the_picture_is_searched_at_once() -> None:
    video = open_video(ColourModel(), entering())

    found = [result.objects for result in video.everything(every=0, change=0.01, **GRID)]

    first = found.index((1, 2))
    assert 5 <= first <= 10
    still = open_video(ColourModel(), entering())
    assert {result.objects for result in still.everything(every=0, change=0, **GRID)} == {(1,)}


def returning(*, disguised: bool = False) -> list[Frame]:
    """A red disc that is away on frames 6 to 13; a blue one that stays.

    Disguised, it comes back a little earlier, in a colour that nobody remembers.
    """
    frames = []
    for index in range(24):
        discs: list[Any] = [(50, 50, 7, BLUE)]
        if index < 6:
            discs.append((20, 20, 7, RED))
        elif index >= 14:
            discs.append((20, 20, 7, ROSE if disguised else RED))
        elif disguised and index >= 11:
            discs.append((20, 20, 7, PINK))
        frames.append(draw(*discs))
    return frames


def test_an_object_that_returns_has_its_id_back() -> None:
    video = open_video(ColourModel(0.1), returning())

    results = list(video.everything(every=3, change=0, **GRID))

    red = next(name for name in results[0].objects if results[0].mask(name)[20, 20])
    assert not results[9].mask(red).any()
    assert results[-1].mask(red)[20, 20]
    assert {result.objects for result in results} == {(1, 2)}


def test_what_was_found_in_its_place_meanwhile_ends() -> None:
    model = ColourModel(0.05)
    model.least_similar = 0.5
    video = open_video(model, returning(disguised=True))

    results = list(video.everything(every=3, change=0, **GRID))

    red = next(name for name in results[0].objects if results[0].mask(name)[20, 20])
    assert results[12].objects == (1, 2, 3), "a new thing, for all that is known"
    assert results[14].objects == (1, 2), "as soon as memory says so"
    assert results[14].mask(red)[20, 20]


def test_an_object_that_is_away_for_long_ends_and_ids_are_not_given_twice() -> None:
    video = open_video(ColourModel(0.1), returning())

    results = list(video.everything(every=3, change=0, end_after=4, **GRID))

    assert results[12].objects in ((1,), (2,))
    assert len(results[-1].objects) == 2
    assert 3 in results[-1].objects


@pytest.mark.parametrize(
    ("tracked", "is_new"),
    [
        (None, True),
        (disc(30, 30, 16), False),
        (disc(30, 30, 26), False),  # the mask is a part of it: an IoU of 0.38
        (disc(36, 30, 16), False),  # an IoU of 0.62, and 0.76 of the mask within it
        (disc(44, 30, 16), True),
    ],
)
def test_a_mask_is_new_unless_it_overlaps_or_is_a_part(tracked: Any, is_new: bool) -> None:
    stream = open_stream(ColourModel())
    image = draw((30, 30, 16, RED), (60, 60, 2, GREEN))
    result = stream.step(image)
    discovery = Discovery(stream, read_discovery({"min_area": 0.01, **GRID}))

    found = discovery._new({} if tracked is None else {1: tracked}, image, result)

    assert [segment.mask[30, 30] for _, segment in found] == [True] * is_new


def test_there_are_so_many_objects_at_most_and_the_smallest_end() -> None:
    frames = []
    for index in range(9):
        discs: list[Any] = [(10, 10, 3, RED), (50, 10, 5, BLUE)]
        if index >= 3:
            discs.append((30, 44, 12, GREEN))
        frames.append(draw(*discs))
    video = open_video(ColourModel(), frames)

    results = list(
        video.everything(every=3, change=0, max_objects=2, min_area=0, points_per_side=24)
    )

    names = {name: results[0].mask(name) for name in results[0].objects}
    small = next(name for name, mask in names.items() if mask[10, 10])
    assert len(results[0].objects) == 2
    assert all(len(result.objects) <= 2 for result in results)
    assert small not in results[-1].objects
    assert any(results[-1].mask(name)[44, 30] for name in results[-1].objects)


def test_ids_can_be_limited_and_areas_too() -> None:
    video = open_video(ColourModel(), entering())
    few = list(video.everything(every=4, max_ids=2, **GRID))
    none = list(open_video(ColourModel(), entering(3)).everything(min_area=0.5, **GRID))

    assert few[-1].objects == (1, 2)
    assert none[-1].objects == ()


def test_two_objects_with_one_mask_are_one() -> None:
    stream = open_stream(ColourModel())
    frames = [draw((20, 20, 7, RED), (50, 50, 7, BLUE)), *[draw((20, 20, 7, RED))] * 6]
    results = list(stream.everything(frames[:1], **GRID))
    assert results[0].objects == (1, 2)
    other = next(name for name in (1, 2) if results[0].mask(name)[50, 50])
    stream.states[other] = stream.states.pop(other)
    stream.automatic.lifetimes[other].born = 0
    memory = stream.states[3 - other]
    stream.settle()
    for frame, kept in memory.bank.prompted.items():
        stream.states[other].bank.prompted[frame] = kept  # it remembers the other now

    later = list(stream.everything(frames[1:], every=2, change=0, **GRID))

    assert len(later[0].objects) == 2
    assert later[-1].objects == (3 - other,)


def test_a_stream_is_a_video_and_can_be_saved_between(tmp_path: Path) -> None:
    model, file = ColourModel(), tmp_path / "stream.safetensors"
    options: dict[str, Any] = {"every": 4, "change": 0.02, **GRID}
    whole = [result.masks for result in open_video(model, entering()).everything(**options)]

    stream = open_stream(model, length=24)
    first = [result.masks for result in stream.everything(entering()[:10], **options)]
    stream.save(file)
    again = resume(model, file)
    assert isinstance(again, Stream)
    rest = [result.masks for result in again.everything(entering()[10:], **options)]

    for one, other in zip(whole, first + rest, strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_stream_of_everything_does_not_grow() -> None:
    model = ColourModel(0.1)
    model.least_similar = 0.6
    stream = open_stream(model)
    rng = np.random.default_rng(0)
    sizes = []

    def frames() -> Any:
        for _ in range(90):
            x, y = rng.integers(10, 54, 2)
            yield draw((x, y, 5, tuple(rng.integers(60, 255, 3))))

    for _ in stream.everything(frames(), every=2, end_after=6, max_objects=5, **GRID):
        banks = sum(one.bank.nbytes for one in stream.states.values())
        sizes.append(
            (len(stream.states), len(stream.numbers), banks, len(stream.automatic.lifetimes))
        )

    later = np.array(sizes[40:])
    assert later[:, 0].max() <= 5
    assert later[:, 1].max() <= 5
    assert later[:, 2].max() <= 5 * (8 * 8 + 17 * 8), "seven masks and fifteen pointers each"
    assert stream.automatic.next_id > 10


def test_frames_that_are_missing_are_passed_over(tmp_path: Path) -> None:
    from PIL import Image

    for index, frame in enumerate(entering(6)):
        Image.fromarray(frame).save(tmp_path / f"{index}.png")
    (tmp_path / "3.png").write_bytes(b"no picture")
    video = open_video(ColourModel(), tmp_path, on_damage="skip")

    results = list(video.everything(start=1, end=4, **GRID))

    assert [result.index for result in results] == [1, 2, 4]
    assert [result.name for result in results] == ["1.png", "2.png", "4.png"]
    assert results[-1].objects == (1,)


@pytest.mark.parametrize(
    ("options", "error", "sentence"),
    [
        ({"evry": 3}, OptionError, "no option `evry`"),
        ({"every": -1}, OptionError, "every"),
        ({"merge_iou": 2}, OptionError, "merge_iou"),
        ({"max_objects": 0}, OptionError, "max_objects"),
        ({"points_per_side": 0}, OptionError, "points_per_side"),
        ({"start": 99}, PromptError, "no frame 99"),
        ({"start": 3, "end": 1}, OptionError, "no frame to track"),
    ],
)
def test_options_are_checked_before_the_first_frame(
    options: dict[str, Any], error: type[Exception], sentence: str
) -> None:
    video = open_video(ColourModel(), entering(4))

    with pytest.raises(error, match=sentence):
        video.everything(**options)


def test_measures() -> None:
    mask = np.zeros((40, 80), np.bool_)
    mask[:20, 40:] = True

    assert sampled(mask, 4).tolist() == [[False, False, True, True]] * 2 + [[False] * 4] * 2
    assert overlap(mask, mask) == 1
    assert overlap(mask, ~mask) == 0
    assert overlap(mask & False, mask & False) == 0
    assert thumbnail(np.full((30, 50, 3), 200, np.uint8)).tolist() == [[200] * 16] * 16

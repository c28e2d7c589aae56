"""Frames prepared ahead: in order, bounded, and gone when nobody wants them any more."""

import gc
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from samgraph.errors import OptionError, VideoError
from samgraph.media.image.opening import ImageSource
from samgraph.media.video.frames import FrameList, open_frames
from samgraph.media.video.prefetch import Prefetcher
from tests.media.video_making import Rgb, make_video, number_in, picture

PATIENCE = 20.0


def numbers_in(frames: Sequence[Rgb]) -> list[int]:
    return [number_in(frame) for frame in frames]


@pytest.fixture
def source() -> FrameList:
    return FrameList([picture(number) for number in range(12)])


def workers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "samgraph-prefetch"]


def wait_for(what: threading.Event) -> None:
    assert what.wait(PATIENCE)


def wait_until_no_worker_is_left() -> None:
    end = time.monotonic() + PATIENCE
    while workers() and time.monotonic() < end:
        time.sleep(0.01)
    assert not workers()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, range(12)),
        ({"start": 3}, range(3, 12)),
        ({"start": 3, "stop": 6}, range(3, 6)),
        ({"stop": 100}, range(12)),
        ({"reverse": True}, range(11, -1, -1)),
        ({"start": 5, "reverse": True}, range(5, -1, -1)),
        ({"start": 5, "stop": 2, "reverse": True}, range(5, 2, -1)),
        ({"start": 12}, range(0)),
    ],
)
def test_frames_come_prepared_and_in_order(
    source: FrameList, options: dict[str, int], expected: range
) -> None:
    with Prefetcher(source, numbers_in, **options) as frames:  # type: ignore[arg-type]  # any of them
        found = list(frames)

    assert found == [(index, index) for index in expected]
    wait_until_no_worker_is_left()


@pytest.mark.parametrize("reverse", [False, True])
def test_a_video_file_is_read_ahead_in_both_directions(tmp_path: Path, reverse: bool) -> None:
    path = make_video(tmp_path / "clip.mp4", 30)

    with (
        open_frames(path, cache_frames=5) as source,
        Prefetcher(source, numbers_in, reverse=reverse) as frames,
    ):
        found = [number for _, number in frames]

    assert found == (list(range(29, -1, -1)) if reverse else list(range(30)))


def test_the_next_frame_is_prepared_while_the_first_is_in_use(source: FrameList) -> None:
    begun = {index: threading.Event() for index in range(12)}

    def prepare(frames: Sequence[Rgb]) -> list[int]:
        begun[number_in(frames[0])].set()
        return numbers_in(frames)

    with Prefetcher(source, prepare) as frames:
        for index, _ in frames:
            wait_for(begun[min(index + 1, 11)])


def test_only_a_few_frames_are_prepared_ahead(source: FrameList) -> None:
    prepared: list[int] = []
    third = threading.Event()

    def prepare(frames: Sequence[Rgb]) -> list[int]:
        prepared.extend(numbers_in(frames))
        if len(prepared) == 3:
            third.set()
        return prepared[-1:]

    with Prefetcher(source, prepare, ahead=2) as frames:
        assert next(frames) == (0, 0)
        wait_for(third)
        time.sleep(0.05)
        assert prepared == [0, 1, 2]


def test_an_error_comes_out_after_the_frames_before_it(source: FrameList) -> None:
    def prepare(frames: Sequence[Rgb]) -> list[int]:
        if number_in(frames[0]) == 4:
            raise ZeroDivisionError("four")
        return numbers_in(frames)

    frames = Prefetcher(source, prepare, ahead=10)

    assert [next(frames)[0] for _ in range(4)] == [0, 1, 2, 3]
    with pytest.raises(ZeroDivisionError, match="four"):
        next(frames)
    with pytest.raises(StopIteration):
        next(frames)
    wait_until_no_worker_is_left()


def test_an_error_of_the_source_comes_out(source: FrameList) -> None:
    with (
        Prefetcher(source, numbers_in, start=20, reverse=True) as frames,
        pytest.raises(VideoError, match="has no frame 20"),
    ):
        next(frames)


def test_missing_frames_are_left_out(tmp_path: Path) -> None:
    items: list[ImageSource] = [picture(0), tmp_path / "missing.png", picture(2), picture(3)]
    source = FrameList(items, on_damage="skip")

    with Prefetcher(source, numbers_in) as frames:
        assert [index for index, _ in frames] == [0, 2, 3]

    assert source.damage.missing == (1,)


def test_frames_are_prepared_together(source: FrameList) -> None:
    sizes: list[int] = []

    def prepare(frames: Sequence[Rgb]) -> list[int]:
        sizes.append(len(frames))
        return numbers_in(frames)

    with Prefetcher(source, prepare, at_once=5) as frames:
        assert list(frames) == [(index, index) for index in range(12)]

    assert sizes == [5, 5, 2]


def test_frames_before_an_error_are_passed_on() -> None:
    def broken() -> Iterator[Rgb]:
        yield picture(0)
        yield picture(1)
        raise ZeroDivisionError("two")

    with Prefetcher(open_frames(broken()), numbers_in, at_once=4) as frames:
        assert [next(frames), next(frames)] == [(0, 0), (1, 1)]
        with pytest.raises(Exception, match="two"):
            next(frames)


def test_an_iterator_ends_where_it_ends() -> None:
    source = open_frames(picture(number) for number in range(7))

    with Prefetcher(source, numbers_in) as frames:
        assert [number for _, number in frames] == list(range(7))


def test_what_an_iterator_raises_reaches_the_loop() -> None:
    def broken() -> Iterator[Rgb]:
        yield picture(0)
        raise ZeroDivisionError

    with Prefetcher(open_frames(broken()), numbers_in) as frames:
        assert next(frames) == (0, 0)
        with pytest.raises(ZeroDivisionError):
            next(frames)


def test_closing_stops_the_thread_at_once(source: FrameList) -> None:
    frames = Prefetcher(source, numbers_in, ahead=1)
    next(frames)
    start = time.monotonic()
    frames.close()
    frames.close()

    assert time.monotonic() - start < PATIENCE / 4
    assert not workers()
    with pytest.raises(StopIteration):
        next(frames)


def test_leaving_a_loop_early_stops_the_thread(source: FrameList) -> None:
    with Prefetcher(source, numbers_in, ahead=1) as frames:
        for index, _ in frames:
            if index == 2:
                break

    assert not workers()


def test_a_collected_prefetcher_stops_its_thread(source: FrameList) -> None:
    frames = Prefetcher(source, numbers_in, ahead=1)
    next(frames)
    assert workers()
    del frames
    gc.collect()

    wait_until_no_worker_is_left()


def test_options_are_checked(source: FrameList) -> None:
    with pytest.raises(OptionError, match="at least one frame"):
        Prefetcher(source, numbers_in, ahead=0)
    with pytest.raises(OptionError, match="is not known"):
        Prefetcher(open_frames(iter([picture(0)])), numbers_in, reverse=True)

"""Streams: equal to videos, constant in memory, and able to go on for ever."""

import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from samgraph.errors import PromptError, VideoError
from samgraph.predict.video import stream as module
from samgraph.predict.video.feed import prepare
from samgraph.predict.video.stream import Stream, open_stream
from samgraph.predict.video.video import open_video
from tests.golden import scenes
from tests.predict.models import tiny_model

BOX = (17, 27, 63, 73)
FRAMES = 9


def stream_of(**options: Any) -> Stream:
    return open_stream(tiny_model(), memory_precision="fp32", **options)


def streamed(stream: Stream) -> dict[int, npt.NDArray[np.float32]]:
    """An object from the start, another later, and a correction."""
    found = {}
    for index in range(FRAMES):
        result = stream.step(scenes.frame(index))
        if result.objects:
            found[index] = result.low_logits
        if index == 0:
            found[0] = stream.add(object=1, box=BOX).low_logits
        if index == 3:
            stream.add(object=2, points=[(118, 66)])
        if index == 5:
            stream.add(object=1, points=[(100, 62)], labels=[1])
    return found


def tracked(source: Any, **options: Any) -> dict[int, npt.NDArray[np.float32]]:
    """The same in a video, where prompts come between frames as well."""
    video = open_video(tiny_model(), source, memory_precision="fp32", **options)
    found = {0: video.add(frame=0, object=1, box=BOX).low_logits}
    for result in video.track():
        found[result.index] = result.low_logits
        if result.index == 3:
            video.add(frame=3, object=2, points=[(118, 66)])
        if result.index == 5:
            video.add(frame=5, object=1, points=[(100, 62)], labels=[1])
    return found


def test_a_stream_that_knows_its_length_is_equal_to_a_video() -> None:
    one, other = streamed(stream_of(length=FRAMES)), tracked(scenes.frames(FRAMES))

    assert one.keys() == other.keys()
    for frame in one:
        np.testing.assert_array_equal(one[frame], other[frame])


def test_a_stream_without_end_is_equal_to_a_video_without_end() -> None:
    one, other = streamed(stream_of()), tracked(iter(scenes.frames(FRAMES)))

    for frame in one:
        np.testing.assert_array_equal(one[frame], other[frame])
    short = streamed(stream_of(length=FRAMES))
    assert any(not np.array_equal(one[frame], short[frame]) for frame in one)


def test_what_a_stream_keeps_does_not_grow() -> None:
    stream = stream_of(max_prompted=2)
    sizes = []
    for index in range(45):
        stream.step(scenes.frame(index % 10))
        if index % 10 == 0:
            stream.add(object=1, points=[(40, 50)])
        one = stream.states[1]
        sizes.append((one.bank.nbytes, len(one.tracked), len(one.answers), len(one.bank.prompted)))

    later = np.array(sizes[25:])
    assert later[:, 0].max() <= max(size[0] for size in sizes[:25]) * 1.05
    assert later[:, 1].max() <= 18
    assert later[:, 2].max() <= 1
    assert later[:, 3].max() <= 4


def test_objects_come_and_go() -> None:
    stream = stream_of()
    with pytest.raises(PromptError, match="no frame"):
        stream.add(object=1, box=BOX)

    assert len(stream.step(scenes.frame(0))) == 0
    stream.add(object=1, box=BOX)
    stream.add(object="two", points=[(118, 84)])
    assert stream.step(scenes.frame(1)).objects == (1, "two")
    stream.remove(1)
    assert stream.step(scenes.frame(2)).objects == ("two",)
    stream.reset()
    assert stream.step(scenes.frame(0)).objects == ()
    assert stream.position == 1


def test_clearing_the_only_prompt_forgets_the_object() -> None:
    stream = stream_of()
    stream.step(scenes.frame(0))
    stream.add(object=1, box=BOX)

    stream.clear(object=1)

    assert stream.objects == ()


def test_a_frame_that_cannot_be_used_leaves_the_stream_as_it_was() -> None:
    stream = stream_of()
    stream.step(scenes.frame(0))
    stream.add(object=1, box=BOX)

    with pytest.raises(VideoError, match="frame 1"):
        stream.step(b"not an image")

    assert stream.position == 1
    assert stream.step(scenes.frame(1)).index == 1


def test_frames_may_differ_in_size() -> None:
    stream = stream_of()
    stream.step(scenes.frame(0))
    stream.add(object=1, box=BOX)

    result = stream.step(scenes.frame(1)[:100, :120])

    assert result.masks.shape == (1, 100, 120)


def test_a_stream_tells_how_long_its_steps_take() -> None:
    stream = stream_of()
    assert stream.latency.steps == 0

    for index in range(3):
        stream.step(scenes.frame(index), time=index / 25)

    latency = stream.latency
    assert latency.steps == 3
    assert 0 < latency.p50 <= latency.p99 <= latency.worst
    assert "p50" in str(latency)


def test_a_stream_runs_through_an_iterator() -> None:
    stream = stream_of()
    seen = []

    for result in stream.run(iter(scenes.frames(4))):
        seen.append(len(result))
        if result.index == 0:
            stream.add(object=1, box=BOX)

    assert seen == [0, 1, 1, 1]


def test_a_stream_runs_from_a_camera(monkeypatch: pytest.MonkeyPatch) -> None:
    frames = [(True, scenes.frame(0)[:, :, ::-1]), (False, None)]
    released = []
    camera = SimpleNamespace(
        isOpened=lambda: True, read=lambda: frames.pop(0), release=lambda: released.append(1)
    )
    monkeypatch.setitem(sys.modules, "cv2", SimpleNamespace(VideoCapture=lambda _: camera))

    results = list(stream_of().run(0))

    assert len(results) == 1
    assert results[0].image is not None
    np.testing.assert_array_equal(results[0].image, scenes.frame(0))
    assert released == [1]


def test_a_camera_needs_a_library_and_must_be_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cv2", None)
    with pytest.raises(VideoError, match="OpenCV"):
        next(stream_of().run(0))

    closed = SimpleNamespace(isOpened=lambda: False)
    monkeypatch.setitem(sys.modules, "cv2", SimpleNamespace(VideoCapture=lambda _: closed))
    with pytest.raises(VideoError, match="camera 3"):
        next(stream_of().run(3))


def test_a_stream_finds_the_objects_of_a_video() -> None:
    video = open_video(tiny_model(), scenes.frames(3))
    video.add(frame=0, object="disc", box=BOX)
    stream = stream_of()
    stream.step(scenes.frame(0))

    stream.remember(video)

    assert stream.step(scenes.frame(1)).objects == ("disc",)
    with pytest.raises(PromptError, match="already"):
        stream.remember(video)


def test_a_frame_without_objects_costs_its_decoding(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = open_stream(tiny_model())
    prepared: list[int] = []

    def counting(*given: Any) -> Any:
        prepared.append(stream.position)
        return prepare(*given)

    monkeypatch.setattr(module, "prepare", counting)
    for index in range(3):
        stream.step(scenes.frame(index))
    assert prepared == []

    stream.add(object=1, box=(17, 27, 63, 73))
    stream.add(object=1, points=[(40, 50)])
    assert prepared == [3]
    stream.step(scenes.frame(3))
    assert prepared == [3, 4]


def test_a_prompt_is_for_the_frame_as_it_was_given() -> None:
    """A camera may write the next frame into the same array."""
    stream, other = open_stream(tiny_model()), open_stream(tiny_model())
    shared = scenes.frame(0).copy()
    stream.step(shared)
    other.step(scenes.frame(0))

    shared[:] = 0

    box = (17, 27, 63, 73)
    first, second = stream.add(object=1, box=box), other.add(object=1, box=box)
    assert np.array_equal(first.low_logits, second.low_logits)

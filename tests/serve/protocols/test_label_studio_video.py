"""Label Studio's interactive video editor: events, in the order its page sends them."""

import tempfile
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from samgraph.media.image.reading import read_image
from samgraph.serve.protocols.pictures import decode_base64
from samgraph.serve.protocols.task_video import TaskVideo
from tests.checkpoint.built_in import needs_built_in
from tests.serve.protocols.drawn import (
    FPS,
    GOOD,
    box,
    click,
    data_uri,
    frames,
    iou,
    write_clip,
)
from tests.serve.serving import SECONDS, Running, error_of, nano, until

pytest.importorskip("av")

CONFIG = """
<View>
  <Labels name="labels" toName="video"><Label value="star"/></Labels>
  <Video name="video" value="$video" framerate="10"/>
  <VideoRectangle name="box" toName="video"/>
</View>"""
COUNT = 8
TRACKED = 0.7  # the clip is compressed, and the star turns as it moves


@cache
def clip_uri(folder: Path) -> str:
    path = folder / "clip.mp4"
    write_clip(path, frames(COUNT)[0])
    return data_uri(path.read_bytes(), "video/mp4")


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    return clip_uri(tmp_path_factory.mktemp("clip"))


def post(server: Running, uri: str, context: dict[str, Any], task: int = 1) -> Any:
    body = {
        "tasks": [{"id": task, "data": {"video": uri}}],
        "project": "1.1700000000",
        "label_config": CONFIG,
        "params": {"context": context},
    }
    return server.client.post("/predict", json=body)


def event(server: Running, uri: str, name: str, task: int = 1, **context: Any) -> Any:
    """What an event is answered with."""
    reply = post(server, uri, {"event": name, **context}, task)
    assert reply.status_code == 200, reply.text
    (found,) = reply.json()["results"][0]["result"]
    assert (found["from_name"], found["to_name"]) == ("box", "video")
    return found


def star(frame: int) -> list[dict[str, Any]]:
    """A click on the star, in percent."""
    mask = frames(COUNT)[1][frame]
    x, y = click(mask)
    value = {"x": 100 * x / mask.shape[1], "y": 100 * y / mask.shape[0], "positive": True}
    return [{"type": "keypointlabels", "value": value}]


def mask_of(value: dict[str, Any]) -> Any:
    return read_image(decode_base64(value["imageDataURL"]))[:, :, 0] > 0


def polled(server: Running, uri: str, session: str) -> Iterator[dict[str, Any]]:
    """The replies to polling, until the track is done."""
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        found = event(server, uri, "track_progress", session_id=session)
        assert found["type"] == "track_progress"
        yield found["value"]
        if found["value"]["done"]:
            return
    raise AssertionError("the track did not end")


@needs_built_in
def test_a_click_on_a_frame_is_found_by_time_or_number(server: Running, uri: str) -> None:
    """The editor counts frames from 1, and moves a little past the beginning of a frame."""
    mask = frames(COUNT)[1][3]

    by_number = event(server, uri, "predict", frame=4, result=star(3))
    by_time = event(server, uri, "predict", frame=99, time_ms=302.0, result=star(3))

    assert by_number["type"] == "bitmask"
    assert iou(mask_of(by_number["value"]), mask) >= GOOD
    assert by_time["value"] == by_number["value"]
    assert by_time["value"]["height"] == mask.shape[0]


@needs_built_in
@pytest.mark.parametrize(
    ("direction", "expected"),
    [
        ("forward", [3, 4, 5]),
        ("backward", [3, 2, 1]),
        ("both", [3, 4, 5, 2, 1]),
    ],
)
def test_a_track_is_polled_frame_by_frame(
    server: Running, uri: str, direction: str, expected: list[int]
) -> None:
    """The prompt is not on the first frame."""
    masks = frames(COUNT)[1]

    started = event(
        server, uri, "track", frame=4, direction=direction, max_frames=2, result=star(3)
    )
    replies = list(polled(server, uri, started["value"]["session_id"]))

    assert started["type"] == "track_started"
    assert started["value"]["total_frames"] == len(expected)
    assert started["value"]["fps"] == pytest.approx(FPS, rel=0.01)
    assert started["value"]["duration_ms"] == pytest.approx(1000 * COUNT / FPS, rel=0.01)
    found = [frame for reply in replies for frame in reply["frames"]]
    assert [frame["frame"] for frame in found] == expected
    for frame in found:
        assert iou(mask_of(frame), masks[frame["frame"]]) >= TRACKED
        assert frame["time_ms"] == pytest.approx(frame["frame"] * 1000 / FPS, abs=1)
    last = replies[-1]
    assert (last["produced"], last["total"], last["error"]) == (len(expected), len(expected), None)


def test_a_track_may_be_told_its_duration_and_ends_with_the_video(
    server: Running, uri: str
) -> None:
    short = event(server, uri, "track", frame=1, max_duration_ms=300, result=star(0))
    whole = event(server, uri, "track", frame=1, result=star(0))

    assert short["value"]["total_frames"] == 4
    assert whole["value"]["total_frames"] == COUNT
    for started in (short, whole):
        event(server, uri, "track_cancel", session_id=started["value"]["session_id"])


def test_a_cancelled_track_is_gone(server: Running, uri: str) -> None:
    started = event(server, uri, "track", frame=1, result=star(0))
    session = started["value"]["session_id"]

    cancelled = event(server, uri, "track_cancel", session_id=session)
    after = event(server, uri, "track_progress", session_id=session)

    assert (cancelled["type"], cancelled["value"]) == ("track_cancel_ack", {"status": "cancelled"})
    assert after["value"]["done"] is True
    assert after["value"]["error"] == "session not found"


def test_frames_are_encoded_ahead(server: Running, uri: str) -> None:
    replies = [event(server, uri, "prewarm", task=2, frame=3, window=3, direction="backward")]

    def is_encoded() -> bool:
        replies.append(
            event(server, uri, "prewarm", task=2, frame=3, window=3, direction="backward")
        )
        return not replies[-1]["value"]["pending"]

    until(is_encoded)
    first, again = replies[0], replies[-1]

    assert first["type"] == "prewarm_ack"
    assert first["value"]["pending"] == [2, 1, 0]
    assert again["value"]["cached"] == [2, 1, 0]
    assert again["value"]["frame_count"] == COUNT


def test_a_released_video_leaves_nothing_behind(
    server: Running, uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    event(server, uri, "predict", task=3, frame=1, result=star(0))
    event(server, uri, "track", task=3, frame=1, result=star(0))
    before = len(list(tmp_path.iterdir()))

    released = event(server, uri, "release", task=3)
    after = len(list(tmp_path.iterdir()))
    warm = event(server, uri, "prewarm", task=3, frame=1, window=1)

    assert (released["type"], released["value"]) == ("release_ack", {"status": "released"})
    assert (before, after) == (1, 0)
    assert warm["value"]["pending"] == [0]


@needs_built_in
def test_rectangles_are_tracked_at_once_without_events(server: Running, uri: str) -> None:
    """As the older video backend is asked; it tracked ten frames, and only from the first."""
    pictures, masks = frames(COUNT)
    height, width = masks[0].shape
    left, top, right, bottom = box(masks[2])
    drawn = {
        "frame": 3,
        "x": 100 * left / width,
        "y": 100 * top / height,
        "width": 100 * (right - left) / width,
        "height": 100 * (bottom - top) / height,
        "enabled": True,
        "rotation": 0,
        "time": 0.2,
    }
    region = {"type": "videorectangle", "value": {"sequence": [drawn], "labels": ["star"]}}

    reply = post(server, uri, {"result": [region]})

    (found,) = reply.json()["results"][0]["result"]
    sequence = found["value"]["sequence"]
    assert (found["type"], found["value"]["labels"]) == ("videorectangle", ["star"])
    assert found["value"]["framesCount"] == len(pictures)
    assert [key["frame"] for key in sequence] == list(range(3, COUNT + 1))
    for key in sequence:
        left, top, right, bottom = box(masks[key["frame"] - 1])
        assert key["x"] == pytest.approx(100 * left / width, abs=3)
        assert key["width"] == pytest.approx(100 * (right - left) / width, abs=4)


@pytest.mark.parametrize(
    ("context", "status", "says"),
    [
        ({"event": "guess"}, 400, "no event"),
        ({"event": "track", "frame": 1, "direction": "up"}, 400, "no direction"),
        ({"event": "track", "frame": 1}, 400, "no prompt"),
        ({"result": [{"value": {"x": 1, "y": 1}}]}, 400, "nothing to track"),
        ({"event": "track", "frame": "x"}, 422, "frame"),
    ],
)
def test_bad_events_are_refused(
    server: Running, uri: str, context: Any, status: int, says: str
) -> None:
    reply = post(server, uri, context)

    assert reply.status_code == status
    assert says in error_of(reply)["message"]


def test_what_is_no_video_is_refused(server: Running) -> None:
    context = {"event": "predict", "frame": 1, "result": star(0)}

    damaged = post(server, data_uri(b"not a video", "video/mp4"), context)
    away = post(server, "http://127.0.0.1:9/clip.mp4", context)

    assert damaged.status_code == 400
    assert away.status_code == 403
    assert "--allow-host" in error_of(away)["hint"]


def test_frames_are_found_by_the_times_they_have(tmp_path: Path) -> None:
    path = tmp_path / "clip.mp4"
    write_clip(path, frames(4)[0])
    video = TaskVideo("key", tempfile.TemporaryDirectory(), path, nano().video(path))
    try:
        assert [video.frame_index(ms, None) for ms in (0, 99, 100, 102, 299.9, 300, 9e9)] == [
            0, 0, 1, 1, 2, 3, 3,
        ]  # fmt: skip
        assert [video.frame_index(None, frame) for frame in (None, 0, 1, 4, 9)] == [0, 0, 0, 3, 3]
        assert video.frame_index(-5, None) == 0
    finally:
        video.close()

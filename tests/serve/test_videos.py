"""Videos over HTTP: objects, prompts, tracks with events, masks, timeline, restart."""

import asyncio
import io
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from PIL import Image

from samgraph.media.mask import rle
from samgraph.serve.events import Channel
from samgraph.serve.samples import FRAMES, SAMPLES, clip_frame
from samgraph.serve.tracking import Track
from tests.serve.serving import SECONDS, Running, error_of, nano, running

CUP = {"frame": 0, "object": 1, "points": [[110, 155]], "labels": [1]}


def video_id(client: httpx.Client) -> str:
    reply = client.post("/api/videos", params={"sample": "cup"})
    assert reply.status_code == 201, reply.text
    found: str = reply.json()["id"]
    return found


def events(server: Running, name: str, last: str | None = None) -> Iterator[tuple[str, Any]]:
    """The events of a video, until a track ends."""
    headers = {} if last is None else {"last-event-id": last}
    with server.client.stream("GET", f"/api/videos/{name}/events", headers=headers) as stream:
        kind = ""
        for line in stream.iter_lines():
            key, _, value = line.partition(": ")
            if key == "event":
                kind = value
            elif key == "data":
                yield kind, json.loads(value)
                if kind in ("done", "cancelled", "error"):
                    return


def track(server: Running, name: str, **body: Any) -> list[tuple[str, Any]]:
    """Track to the end; the events."""
    found: list[tuple[str, Any]] = []
    begun = threading.Event()

    def listen() -> None:
        with server.client.stream("GET", f"/api/videos/{name}/events") as stream:
            kind = ""
            for line in stream.iter_lines():
                begun.set()  # its first line comes when it is listening
                key, _, value = line.partition(": ")
                kind = value if key == "event" else kind
                if key == "data":
                    found.append((kind, json.loads(value)))
                    if kind in ("done", "cancelled", "error"):
                        return

    listener = threading.Thread(target=listen)
    listener.start()
    assert begun.wait(SECONDS)
    reply = server.client.post(f"/api/videos/{name}/track", json=body)
    assert reply.status_code == 202, reply.text
    listener.join(SECONDS)
    assert not listener.is_alive()
    return found


def masks(server: Running, name: str, first: int, last: int) -> dict[tuple[int, int], str]:
    reply = server.client.get(f"/api/videos/{name}/masks", params={"from": first, "to": last})
    return {
        (frame["frame"], obj["id"]): obj["rle"]["counts"]
        for frame in reply.json()["frames"]
        for obj in frame["objects"]
    }


def library_masks(folder: Path, frames: int) -> dict[tuple[int, int], str]:
    """What the library finds for the same click in the same file.

    The file is the server's: encoding its frames a second time may give other pixels.
    """
    path = folder / ".samples" / SAMPLES["cup"].file
    with nano().video(path) as video:
        video.add(frame=0, object=1, points=[(110, 155)])
        return {
            (result.index, 1): result.rles[0]["counts"].decode()
            for result in video.track(start=0, end=frames - 1)
        }


def test_a_video_opens_and_shows_its_frames(server: Running) -> None:
    made = server.client.post("/api/videos", params={"sample": "cup"}).json()
    name = made["id"]

    assert (made["width"], made["height"], made["frames"]) == (450, 300, FRAMES)
    assert made["fps"] == pytest.approx(12, rel=0.03)
    frame = server.client.get(f"/api/videos/{name}/frames/3")
    small = server.client.get(f"/api/videos/{name}/frames/3", params={"width": 90})
    shown = np.asarray(Image.open(io.BytesIO(frame.content)), np.float32)
    assert np.abs(shown - clip_frame(3)).mean() < 4  # two lossy codings
    assert Image.open(io.BytesIO(small.content)).size == (90, 60)
    assert "max-age" in frame.headers["cache-control"]
    assert server.client.get(f"/api/videos/{name}/frames/{FRAMES}").status_code == 404
    assert server.client.get(f"/api/videos/{name}/frames/0?width=x").status_code == 422
    assert server.client.get(f"/api/videos/{name}/frames/0?width=99999").status_code == 422


def test_a_track_gives_the_masks_of_the_library(server: Running) -> None:
    name = video_id(server.client)
    prompted = server.client.post(f"/api/videos/{name}/prompts", json=CUP)
    assert prompted.status_code == 200, prompted.text

    seen = track(server, name, start=0, frames=8)

    expected = library_masks(server.folder, 8)
    assert masks(server, name, 0, 20) == expected
    first = prompted.json()["objects"][0]
    assert first["rle"]["counts"] == expected[0, 1]
    assert first["prompted"]
    assert [kind for kind, _ in seen] == ["progress"] * 8 + ["done"]
    last = seen[-2][1]
    assert (last["frame"], last["done"], last["total"]) == (7, 8, 8)
    assert last["objects"][0]["area"] > 1000
    assert last["fps"] > 0


def test_the_timeline_has_a_lane_per_object(server: Running) -> None:
    name = video_id(server.client)
    server.client.post(f"/api/videos/{name}/prompts", json=CUP | {"frame": 2})
    track(server, name, start=2, direction="both", frames=3)

    found = server.client.get(f"/api/videos/{name}/timeline").json()

    assert found["frames"] == FRAMES
    lane = found["objects"][0]
    assert (lane["id"], lane["prompts"], lane["tracked"]) == (1, [2], [[0, 4]])
    assert lane["stale"] == []
    server.client.post(f"/api/videos/{name}/prompts", json=CUP | {"frame": 4, "object": 1})
    lane = server.client.get(f"/api/videos/{name}/timeline").json()["objects"][0]
    assert lane["prompts"] == [2, 4]
    assert lane["stale"] == [[0, 3]]
    shown = server.client.get(f"/api/videos/{name}/masks?from=3&to=3").json()["frames"]
    assert shown[0]["objects"][0]["stale"]


def test_objects_are_named_cleared_and_removed(server: Running) -> None:
    name = video_id(server.client)
    made = server.client.post(
        f"/api/videos/{name}/objects", json={"name": "cup", "color": "#112233"}
    )
    assert made.status_code == 201
    number = made.json()["id"]
    server.client.post(f"/api/videos/{name}/prompts", json=CUP | {"object": number})
    server.client.post(f"/api/videos/{name}/prompts", json=CUP | {"object": 7, "frame": 1})

    changed = server.client.patch(f"/api/videos/{name}/objects/{number}", json={"name": "mug"})
    assert changed.json() == {"id": number, "name": "mug", "color": "#112233", "prompts": [0]}
    listed = server.client.get(f"/api/videos/{name}").json()["objects"]
    assert [(obj["id"], obj["prompts"]) for obj in listed] == [(number, [0]), (7, [1])]

    gone = server.client.delete(f"/api/videos/{name}/objects/7/prompts/1")
    assert gone.status_code == 204
    assert masks(server, name, 1, 1) == {}
    again = server.client.delete(f"/api/videos/{name}/objects/7/prompts/1")
    assert again.status_code == 404
    assert server.client.delete(f"/api/videos/{name}/objects/{number}").status_code == 204
    assert server.client.delete(f"/api/videos/{name}/objects/{number}").status_code == 404
    assert masks(server, name, 0, 0) == {}
    assert server.client.patch(f"/api/videos/{name}/objects/9", json={}).status_code == 404
    next_id = server.client.post(f"/api/videos/{name}/objects", json={}).json()["id"]
    assert next_id == 8


def test_a_prompt_replaces_what_the_object_had_on_the_frame(server: Running) -> None:
    name = video_id(server.client)
    first = server.client.post(f"/api/videos/{name}/prompts", json=CUP).json()
    box = {"frame": 0, "object": 1, "box": [40, 80, 190, 230]}

    boxed = server.client.post(f"/api/videos/{name}/prompts", json=box).json()
    again = server.client.post(f"/api/videos/{name}/prompts", json=CUP).json()

    assert boxed["objects"] != first["objects"]
    assert again["objects"] == first["objects"]


def test_a_mask_is_taken_as_the_answer(server: Running) -> None:
    name = video_id(server.client)
    mask = np.zeros((300, 450), np.bool_)
    mask[100:200, 60:180] = True
    coded = rle.to_json(rle.encode(mask))

    reply = server.client.post(
        f"/api/videos/{name}/prompts", json={"frame": 0, "object": 1, "mask": coded}
    )

    found = rle.decode(reply.json()["objects"][0]["rle"])
    assert (found & mask).sum() / (found | mask).sum() > 0.95


def test_hovering_leaves_no_trace(server: Running) -> None:
    name = video_id(server.client)
    body = {"points": [[110, 155]], "labels": [1]}

    reply = server.client.post(f"/api/videos/{name}/frames/0/predict", json=body)

    assert len(reply.json()["masks"]) == 3
    assert server.client.get(f"/api/videos/{name}").json()["objects"] == []
    assert masks(server, name, 0, 0) == {}
    assert server.client.post(f"/api/videos/{name}/frames/99/predict", json=body).status_code == 404


@pytest.fixture
def paused(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Tracks pause after their third frame until the event is set."""
    go_on, publish = threading.Event(), Track._publish

    def publish_and_wait(track: Track, lines: Any, seconds: float) -> None:
        publish(track, lines, seconds)
        if track.done == 3:
            assert go_on.wait(SECONDS)

    monkeypatch.setattr(Track, "_publish", publish_and_wait)
    yield go_on
    go_on.set()


def test_a_track_is_cancelled_and_goes_on(
    server: Running, paused: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = video_id(server.client)
    server.client.post(f"/api/videos/{name}/prompts", json=CUP)
    assert server.client.post(f"/api/videos/{name}/track", json={"start": 0}).status_code == 202
    second = server.client.post(f"/api/videos/{name}/track", json={"start": 0})
    assert (second.status_code, error_of(second)["code"]) == (409, "conflict")

    seen = events(server, name)
    while next(seen)[1]["done"] < 3:
        pass
    state = server.client.get(f"/api/videos/{name}").json()["tracking"]
    assert (state["done"], state["total"]) == (3, FRAMES)
    assert server.client.delete(f"/api/videos/{name}/track").status_code == 204
    paused.set()
    ending = list(seen)[-1]
    assert ending[0] == "cancelled"
    assert ending[1]["done"] == 3
    assert len(masks(server, name, 0, 63)) == 3

    monkeypatch.setattr("samgraph.serve.events.RECENT_SECONDS", 0)  # the first track is no news
    track(server, name, start=3, frames=2)
    assert masks(server, name, 0, 63) == library_masks(server.folder, 5)


def test_a_click_is_answered_between_the_frames_of_a_track(
    server: Running, paused: threading.Event
) -> None:
    name = video_id(server.client)
    server.client.post(f"/api/videos/{name}/prompts", json=CUP)
    server.client.post(f"/api/videos/{name}/track", json={"start": 0, "frames": 6})
    seen = events(server, name)
    while next(seen)[1]["done"] < 3:
        pass

    click = CUP | {"object": 2, "points": [[300, 60]], "frame": 20}
    reply = server.client.post(f"/api/videos/{name}/prompts", json=click)

    assert [obj["id"] for obj in reply.json()["objects"]][-1] == 2
    assert server.client.get(f"/api/videos/{name}").json()["tracking"]["done"] == 3
    paused.set()
    rest = list(seen)
    assert [kind for kind, _ in rest] == ["progress"] * 3 + ["done"]
    assert [obj["id"] for obj in rest[-2][1]["objects"]] == [1, 2]


def test_a_track_whose_end_was_told_is_over(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also while its thread has not ended yet."""
    name, may_end, run = video_id(server.client), threading.Event(), Track.run

    def run_and_wait(track: Track) -> None:
        run(track)
        assert may_end.wait(SECONDS)

    monkeypatch.setattr(Track, "run", run_and_wait)
    try:
        server.client.post(f"/api/videos/{name}/prompts", json=CUP)
        track(server, name, start=0, frames=1)
        assert server.client.get(f"/api/videos/{name}").json()["tracking"] is None
        track(server, name, start=1, frames=1)
    finally:
        may_end.set()


def test_a_listener_misses_nothing_after_its_first_line() -> None:
    async def listen() -> list[bytes]:
        channel = Channel()
        stream = channel.follow(None, lambda: False)
        assert await anext(stream) == b"retry: 1000\n\n"
        for number in range(3):
            channel.publish("progress", number)
        return [await anext(stream) for _ in range(3)]

    lines = asyncio.run(listen())
    assert [line.splitlines()[-2] for line in lines] == [b"data: 0", b"data: 1", b"data: 2"]


def test_a_track_needs_objects_and_frames(server: Running) -> None:
    name = video_id(server.client)

    nothing = server.client.post(f"/api/videos/{name}/track", json={})
    assert (nothing.status_code, error_of(nothing)["code"]) == (400, "bad_input")
    server.client.post(f"/api/videos/{name}/prompts", json=CUP)
    far = server.client.post(f"/api/videos/{name}/track", json={"start": 1000})
    assert far.status_code == 404
    wrong = server.client.post(f"/api/videos/{name}/track", json={"direction": "up"})
    assert wrong.status_code == 422
    assert server.client.delete(f"/api/videos/{name}/track").status_code == 204


@pytest.mark.parametrize("query", ["from=0&to=64", "from=5&to=4", "from=x", "from=-1", "to=1e3"])
def test_a_range_of_masks_is_checked(server: Running, query: str) -> None:
    name = video_id(server.client)

    assert server.client.get(f"/api/videos/{name}/masks?{query}").status_code == 422


def test_a_session_survives_a_restart(tmp_path: Path) -> None:
    with running(tmp_path / "s") as server:
        name = video_id(server.client)
        server.client.post(f"/api/videos/{name}/prompts", json=CUP)
        server.client.patch(f"/api/videos/{name}/objects/1", json={"name": "cup"})
        track(server, name, start=0, frames=4)
        server.client.post(
            f"/api/videos/{name}/prompts", json=CUP | {"object": 2, "points": [[300, 60]]}
        )
        before = server.client.get(f"/api/videos/{name}").json()
        line = server.client.get(f"/api/videos/{name}/timeline").json()
        known = masks(server, name, 0, 63)

    with running(tmp_path / "s") as server:
        assert server.client.get(f"/api/videos/{name}").json() == before
        assert server.client.get(f"/api/videos/{name}/timeline").json() == line
        assert masks(server, name, 0, 63) == known
        track(server, name, start=4, frames=3)
        found = {key: value for key, value in masks(server, name, 0, 6).items() if key[1] == 1}
        assert found == library_masks(server.folder, 7)


def test_the_largest_number_of_an_object_survives_a_restart(tmp_path: Path) -> None:
    with running(tmp_path / "s") as server:
        name = video_id(server.client)
        far = server.client.post(f"/api/videos/{name}/prompts", json=CUP | {"object": 2**31 - 1})
        assert far.status_code == 200, far.text
        more = server.client.post(f"/api/videos/{name}/objects", json={})
        assert (more.status_code, error_of(more)["code"]) == (400, "bad_input")

    with running(tmp_path / "s") as server:
        found = server.client.get(f"/api/videos/{name}").json()
        assert [obj["id"] for obj in found["objects"]] == [2**31 - 1]


def test_sessions_leave_memory_and_come_back(tmp_path: Path) -> None:
    with running(tmp_path, max_loaded=1) as server:
        names = [video_id(server.client) for _ in range(3)]
        for name in names:
            server.client.post(f"/api/videos/{name}/prompts", json=CUP)
        assert server.service.store.loaded == 1
        for name in names:
            assert server.client.get(f"/api/videos/{name}").json()["objects"][0]["prompts"] == [0]
            assert masks(server, name, 0, 0)
        assert server.service.store.loaded == 1


def test_what_is_no_video_is_refused(server: Running) -> None:
    for data in (b"nothing", b"ffconcat version 1.0\nfile a.mp4\n", b"#EXTM3U\nhttp://x/y\n"):
        reply = server.client.post("/api/videos", content=data)
        assert (reply.status_code, error_of(reply)["code"]) == (400, "bad_input")
        assert "/" not in error_of(reply)["message"].replace("http://", "")


def test_what_is_only_read_does_not_wait_for_a_frame(server: Running) -> None:
    name = video_id(server.client)
    server.client.post(f"/api/videos/{name}/prompts", json=CUP)
    with server.service.video(name) as session:
        held, done = threading.Event(), threading.Event()

        def frame() -> None:
            with session.turns.frame(), session.lock:
                held.set()
                done.wait(SECONDS)

        thread = threading.Thread(target=frame)
        thread.start()
        try:
            assert held.wait(SECONDS)
            for path in ("", "/timeline", "/masks?from=0&to=9", "/frames/3?width=64"):
                assert server.client.get(f"/api/videos/{name}{path}").is_success
        finally:
            done.set()
            thread.join()

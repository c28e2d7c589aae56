"""X-AnyLabeling's remote server: what its client sends for images and for videos."""

import asyncio
import json
import threading
from typing import Any

import numpy as np
import pytest

from samgraph.media.mask.polygons import polygons_to_mask
from samgraph.serve.protocols import x_anylabeling_video
from samgraph.serve.protocols.tracks import next_frame
from samgraph.serve.protocols.x_anylabeling import shapes as drawn_shapes
from samgraph.serve.protocols.x_anylabeling import smallest_rectangle
from tests.checkpoint.built_in import needs_built_in
from tests.serve.protocols.drawn import (
    GOOD,
    box,
    click,
    data_uri,
    frames,
    iou,
    picture_bytes,
    png,
    shapes,
)
from tests.serve.serving import SECONDS, Running, running, until

HEADERS = {"Content-Type": "application/json", "Token": ""}
PARAMS = {"conf_threshold": 0.0, "iou_threshold": 0.0, "epsilon_factor": 0.001}


def predict(server: Running, marks: Any, **changes: Any) -> Any:
    params = PARAMS | {"marks": marks} | changes.pop("params", {})
    body = {"model": "sam2", "image": data_uri(picture_bytes()), "params": params} | changes
    return server.client.post("/v1/predict", json=body, headers=HEADERS)


def filled(found: list[dict[str, Any]], size_hw: tuple[int, ...]) -> Any:
    rings = [np.array(shape["points"], np.float64) for shape in found]
    return polygons_to_mask(rings, (size_hw[0], size_hw[1]))


def test_the_models_say_what_they_can(server: Running) -> None:
    found = server.client.get("/v1/models", headers=HEADERS).json()

    assert found["success"]
    assert found["data"]["sam2_video"]["batch_processing_mode"] == "video"
    assert found["data"]["sam2"]["batch_processing_mode"] == "default"
    for model in found["data"].values():
        assert model["display_name"]
        assert all(set(widget) == {"name", "value"} for widget in model["widgets"])
    one = server.client.get("/v1/models/sam2/info").json()
    assert one["data"] == {"model_id": "sam2", **found["data"]["sam2"]}
    none = server.client.get("/v1/models/other/info").json()
    assert none["error"]["code"] == "MODEL_NOT_FOUND"


@needs_built_in
def test_marks_give_polygons(server: Running) -> None:
    first, second = shapes()[0], shapes()[1]
    point = {"type": "point", "data": list(click(first)), "label": 1}
    rectangle = {"type": "rectangle", "data": list(box(second)), "label": 1}

    for mark, target in ((point, first), (rectangle, second)):
        reply = predict(server, [mark])
        data = reply.json()["data"]
        assert reply.json()["success"]
        assert {shape["shape_type"] for shape in data["shapes"]} == {"polygon"}
        assert data["shapes"][0]["points"][0] == data["shapes"][0]["points"][-1]
        assert iou(filled(data["shapes"], target.shape), target) >= GOOD
        assert data["description"] == ""


@needs_built_in
def test_two_rectangles_are_two_objects(server: Running) -> None:
    marks = [{"type": "rectangle", "data": list(box(mask)), "label": 1} for mask in shapes()[:2]]

    found = predict(server, marks, params={"output_mode": "rectangle"}).json()["data"]["shapes"]

    assert [shape["shape_type"] for shape in found] == ["rectangle", "rectangle"]
    for shape, target in zip(found, shapes(), strict=False):
        left, top, right, bottom = box(target)
        assert shape["points"][0] == pytest.approx([left, top], abs=8)
        assert shape["points"][2] == pytest.approx([right, bottom], abs=8)


def test_without_marks_there_is_nothing(server: Running) -> None:
    assert predict(server, []).json()["data"]["shapes"] == []


@pytest.mark.parametrize(
    ("marks", "changes", "says"),
    [
        ([{"type": "point", "data": [1, 2, 3], "label": 1}], {}, "not understood"),
        ([{"type": "rectangle", "data": [1, 2, 3, 4], "label": 0}], {}, "not understood"),
        ([{"type": "circle", "data": [1, 2]}], {}, "circle"),
        ([{"type": "point", "data": [-9, 2], "label": 1}], {}, "outside"),
        ([], {"params": {"text_prompt": "cat"}}, "points and rectangles"),
        ([{"type": "point", "data": [1, 2]}], {"image": "data:image/png,abc"}, "base64"),
        ([{"type": "point", "data": [1, 2]}], {"image": "https://x/y.png"}, "fetches none"),
        ([{"type": "point", "data": [1, 2]}], {"image": 7}, "image"),
        ([], {"model": "yolo11n"}, "no model"),
    ],
)
def test_a_bad_request_is_shown_to_the_user(
    server: Running, marks: Any, changes: Any, says: str
) -> None:
    """The client raises for any status but 200, before it reads the message."""
    reply = predict(server, marks, **changes)

    assert reply.status_code == 200
    assert reply.json()["success"] is False
    assert says in reply.json()["error"]["message"]


def test_a_token_comes_in_a_header_of_its_own(tmp_path: Any) -> None:
    with running(tmp_path, token="a-long-token") as guarded:
        refused = guarded.client.get("/v1/models", headers={"Token": "another-token"})
        answered = guarded.client.get("/v1/models", headers={"Token": "a-long-token"})

    assert refused.status_code == 401
    assert answered.json()["success"]


def start(server: Running, pictures: list[Any]) -> str:
    sent = {"model": "sam2_video", "frames": [data_uri(png(one)) for one in pictures]}
    reply = server.client.post("/v1/video/init", json=sent | {"start_frame_index": 0})
    name: str = reply.json()["data"]["session_id"]
    return name


def prompt(server: Running, name: str, frame: int, mask: Any, **changes: Any) -> Any:
    x, y = click(mask)
    body = {
        "session_id": name,
        "model": "sam2_video",
        "frame_index": frame,
        "points": [[x / mask.shape[1], y / mask.shape[0]]],
        "point_labels": [1],
        "obj_id": 10000,
        "params": PARAMS,
    }
    return server.client.post("/v1/video/prompt", json=body | changes)


def propagate(server: Running, name: str, **changes: Any) -> list[dict[str, Any]]:
    """The events of a track, read line by line as the client does."""
    body = {"session_id": name, "model": "sam2_video"} | changes
    with server.client.stream("POST", "/v1/video/propagate/stream", json=body) as reply:
        lines = list(reply.iter_lines())
    return [json.loads(line[6:]) for line in lines if line.startswith("data: ")]


@needs_built_in
def test_a_video_is_tracked_from_a_click(server: Running) -> None:
    pictures, masks = frames(6)
    name = start(server, pictures)

    shown = prompt(server, name, 1, masks[1]).json()
    events = propagate(server, name, start_frame=1)

    assert iou(filled(shown["data"]["masks"], masks[1].shape), masks[1]) >= GOOD
    assert events[0] == {"type": "started", "total_frames": 6, "start_frame_index": 1}
    assert [event["current_frame"] for event in events[1:-1]] == [1, 2, 3, 4, 5]
    assert [event["type"] for event in events[1:-1]] == ["progress"] * 5
    results = events[-1]["results"]
    assert events[-1]["type"] == "completed"
    assert list(results) == ["1", "2", "3", "4", "5"]
    for index, found in results.items():
        target = masks[int(index)]
        assert iou(filled(found["masks"], target.shape), target) >= 0.7
        assert {shape["group_id"] for shape in found["masks"]} == {10000}
    closed = server.client.post(f"/v1/video/cleanup/{name}?model=sam2_video")
    gone = server.client.post(f"/v1/video/cleanup/{name}?model=sam2_video")
    assert closed.json()["success"]
    assert gone.json()["error"]["code"] == "NOT_FOUND"


def test_a_click_is_answered_while_a_video_is_tracked(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    pictures, masks = frames(4)
    name = start(server, pictures)
    prompt(server, name, 0, masks[0])
    predict(server, [{"type": "point", "data": list(click(shapes()[0])), "label": 1}])
    seen: list[dict[str, Any]] = []
    go_on = threading.Event()

    async def paused(*given: Any) -> Any:
        while sum(entry["type"] == "progress" for entry in seen) == 2 and not go_on.is_set():
            await asyncio.sleep(0.01)
        return await next_frame(*given)

    monkeypatch.setattr(x_anylabeling_video, "next_frame", paused)

    def note(line: str) -> None:
        if line.startswith("data: "):
            seen.append(json.loads(line[6:]))

    def track() -> None:
        body = {"session_id": name, "model": "sam2_video"}
        with (
            running_client(server) as client,
            client.stream("POST", "/v1/video/propagate/stream", json=body) as reply,
        ):
            for line in reply.iter_lines():
                note(line)

    thread = threading.Thread(target=track)
    thread.start()
    try:
        until(lambda: len(seen) >= 3)
        reply = predict(server, [{"type": "point", "data": list(click(shapes()[1])), "label": 1}])
        assert reply.json()["success"]
        assert seen[-1]["type"] == "progress"
    finally:
        go_on.set()
        thread.join()
    assert [entry["type"] for entry in seen] == ["started", *["progress"] * 4, "completed"]


def running_client(server: Running) -> Any:
    import httpx

    return httpx.Client(base_url=server.url, timeout=SECONDS, trust_env=False)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"session_id": "none"}, "no session"),
        ({"frame_index": 9}, "no frame 9"),
        ({"points": None, "text_prompt": "cat"}, "clicked on"),
        ({"point_labels": [1, 1]}, "every point needs a label"),
        ({"points": [[2, 0.5]]}, "outside"),
        ({"model": "sam2"}, "no model"),
    ],
)
def test_a_bad_prompt_is_shown_to_the_user(server: Running, changes: Any, says: str) -> None:
    pictures, masks = frames(2)
    name = start(server, pictures)

    reply = prompt(server, name, 0, masks[0], **changes)

    assert reply.status_code == 200
    assert says in reply.json()["error"]["message"]


def test_bad_frames_are_shown_to_the_user(server: Running) -> None:
    pictures, _ = frames(1)
    small = data_uri(png(pictures[0][:50]))
    whole = data_uri(png(pictures[0]))

    for sent, says in (
        ({"frames": []}, "frames"),
        ({"frames": ["file:///etc/passwd"]}, "fetches none"),
        ({"frames": [whole, small]}, "another size"),
        ({"frames": [data_uri(b"nothing")]}, "frame 0"),
        ({"frames": [whole], "start_frame_index": 1}, "no frame 1"),
    ):
        reply = server.client.post("/v1/video/init", json={"model": "sam2_video"} | sent)
        assert reply.status_code == 200
        assert says in reply.json()["error"]["message"]


def test_nothing_is_tracked_without_a_prompt(server: Running) -> None:
    name = start(server, frames(1)[0])

    reply = server.client.post(
        "/v1/video/propagate/stream", json={"session_id": name, "model": "sam2_video"}
    )

    assert "nothing to track" in reply.json()["error"]["message"]


def test_sessions_beyond_the_limit_close_the_oldest(tmp_path: Any) -> None:
    pictures, masks = frames(1)
    with running(tmp_path, max_loaded=2) as small:
        names = [start(small, pictures) for _ in range(3)]
        replies = [prompt(small, name, 0, masks[0]).json() for name in names]
        cleared = small.client.post("/v1/models/sam2_video/cleanup").json()

    assert [reply["success"] for reply in replies] == [False, True, True]
    assert cleared["data"]["sessions_cleared"] == 2


def test_the_smallest_rectangle_lies_on_the_shape() -> None:
    angle = np.deg2rad(30)
    turn = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
    corners = np.array([[0.0, 0.0], [40, 0], [40, 10], [0, 10], [20, 5]]) @ turn + 50

    found = smallest_rectangle(corners)

    sides = np.hypot(*(np.roll(found, -1, axis=0) - found).T)
    assert sorted(sides) == pytest.approx([10, 10, 40, 40])
    assert {tuple(np.round(p, 6)) for p in found} == {tuple(np.round(p, 6)) for p in corners[:4]}


def test_specks_and_empty_masks_have_no_shape() -> None:
    mask = np.zeros((60, 60), np.bool_)
    assert drawn_shapes(mask, 0.5) == []
    mask[10:40, 10:40] = True
    mask[50, 50] = True

    assert len(drawn_shapes(mask, 0.5)) == 1
    (rotated,) = drawn_shapes(mask, 0.5, mode="rotation")
    assert np.ptp(np.array(rotated["points"]), axis=0) == pytest.approx([30, 30])

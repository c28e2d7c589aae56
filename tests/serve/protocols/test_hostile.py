"""Bodies that no tool sends: whatever is changed in a good one, the reply is never a failure."""

import copy
import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.serve.protocols.drawn import base64_of, data_uri, png
from tests.serve.protocols.test_label_studio import config
from tests.serve.serving import Running, nano

SMALL = png(np.full((24, 32, 3), 128, np.uint8))
CLICKS = {"points": [[5, 5], [9, 9]], "point_labels": [1, 0]}
BODIES: dict[str, Any] = {
    "/api/generate": {"model": "sam2", "image": base64_of(SMALL), "prompt": CLICKS},
    "/sam2/segment_image": {
        "image": {"type": "base64", "value": base64_of(SMALL)},
        "image_id": "a",
        "prompts": {"prompts": [{"points": [{"x": 5, "y": 5, "positive": True}]}]},
        "format": "rle",
        "save_logits_to_cache": True,
        "load_logits_from_cache": True,
    },
    "/v1/predict": {
        "model": "sam2",
        "image": data_uri(SMALL),
        "params": {
            "marks": [
                {"type": "point", "data": [5, 5], "label": 1},
                {"type": "rectangle", "data": [1, 1, 20, 20], "label": 1},
            ],
            "epsilon_factor": 0.01,
            "output_mode": "rotation",
        },
    },
    "/v1/video/init": {"model": "sam2_video", "frames": [data_uri(SMALL)], "start_frame_index": 0},
    "/v1/video/prompt": {
        "session_id": "x",
        "model": "sam2_video",
        "frame_index": 0,
        "points": [[0.5, 0.5]],
        "point_labels": [1],
        "obj_id": 1,
        "params": {"reset_tracker": True},
    },
    "/predict": {
        "tasks": [{"id": 1, "data": {"picture": data_uri(SMALL)}}],
        "label_config": config(),
        "params": {
            "context": {
                "event": None,
                "result": [
                    {"type": "keypointlabels", "value": {"x": 50, "y": 50}, "is_positive": True},
                    {"value": {"x": 1, "y": 1, "width": 50, "height": 50}},
                ],
            }
        },
    },
    "/setup": {"hostname": "http://127.0.0.1:8080", "access_token": "x", "project": "1"},
}
STRANGE: st.SearchStrategy[Any] = st.sampled_from(
    [None, True, "", "x", "\ud800", -1, 0, 2**70, 1e308, -1e308, [], {}, [[]], [None] * 3]
) | st.text(max_size=8)


def paths(value: Any, here: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where something can be replaced."""
    yield here
    if isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from paths(inner, (*here, key))


def changed(body: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    body = copy.deepcopy(body)
    inner = body
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return body


@pytest.mark.parametrize("route", BODIES)
@settings(max_examples=25)
@given(data=st.data())
def test_no_body_makes_the_server_fail(server: Running, route: str, data: st.DataObject) -> None:
    body = BODIES[route]
    for _ in range(data.draw(st.integers(1, 2))):
        body = changed(body, data.draw(st.sampled_from(list(paths(body)))), data.draw(STRANGE))

    reply = server.client.post(route, content=json.dumps(body).encode())

    assert reply.status_code in (200, 400, 403, 404, 413, 422), (body, reply.text)
    assert "the server failed" not in reply.text


@pytest.mark.parametrize("route", BODIES)
@pytest.mark.parametrize(
    "body", [b"", b"{", b"null", b"[]", b"\xff\xfe", b"[" * 100_000, b'{"a": NaN}', b'"' * 3]
)
def test_what_is_no_json_is_refused(server: Running, route: str, body: bytes) -> None:
    reply = server.client.post(route, content=body)

    assert reply.status_code < 500


def test_the_good_bodies_are_good(server: Running) -> None:
    """Else the test above would change nothing that matters."""
    for route, body in BODIES.items():
        reply = server.client.post(route, json=body)
        assert reply.status_code == 200, (route, reply.text)
        is_unknown_session = route == "/v1/video/prompt"
        assert ('"success":false' in reply.text) == is_unknown_session
    assert nano().config.name in server.client.post("/setup", json=BODIES["/setup"]).text

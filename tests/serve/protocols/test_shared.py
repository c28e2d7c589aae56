"""What the protocols share: clicks, outlines, images inside JSON, sessions, turns."""

import base64
from functools import partial
from typing import Any

import numpy as np
import pytest

from samgraph.errors import PromptError
from samgraph.media.mask.polygons import polygons_to_mask
from samgraph.serve.gate import Turns
from samgraph.serve.protocols.clicks import Clicks, bounding_box, outlines
from samgraph.serve.protocols.label_studio_body import (
    WHOLE,
    Context,
    Region,
    RegionValue,
    percent_box,
    read_clicks,
)
from samgraph.serve.protocols.label_studio_video import VideoEvents
from samgraph.serve.protocols.pictures import EncodedImages, decode_base64
from samgraph.serve.protocols.tracks import Sessions
from samgraph.serve.replies import RequestError
from tests.serve.protocols.drawn import click, data_uri, frames, picture_bytes, shapes, write_clip
from tests.serve.protocols.test_label_studio_video import COUNT, event
from tests.serve.protocols.test_x_anylabeling import predict, prompt, propagate, start
from tests.serve.serving import Running, nano, until

SIZE = (200, 400)


def test_percent_and_fractions_become_pixels() -> None:
    regions = [
        Region(RegionValue(x=50, y=25)),
        Region(RegionValue(x=10, y=20, width=30, height=40)),
    ]

    percent = read_clicks(Context(result=regions)).scaled(SIZE, WHOLE)
    fraction = Clicks(((0.5, 0.25),), (1,)).scaled(SIZE, 1)

    assert percent.points == ((200, 50),)
    assert percent.box == pytest.approx((40, 40, 160, 120))
    assert fraction.points == ((200, 50),)
    assert percent_box((40, 40, 160, 120), SIZE) == {"x": 10, "y": 20, "width": 30, "height": 40}


def test_a_box_is_put_upright_and_cut_off_at_the_edges() -> None:
    assert Clicks(box=(390, 190, -50, -60)).within(SIZE).box == (0, 0, 390, 190)
    assert Clicks(box=(10, 10, 900, 900)).within(SIZE).box == (10, 10, 400, 200)
    outside = Clicks(box=(500, 10, 600, 20))
    assert outside.within(SIZE) == outside
    with pytest.raises(PromptError, match="no prompt"):
        Clicks().prompts(SIZE)


def test_outlines_keep_holes_and_drop_specks() -> None:
    mask = np.zeros(SIZE, np.bool_)
    mask[20:120, 30:150] = True
    mask[50:80, 60:100] = False
    mask[150:190, 300:360] = True
    full = mask.copy()
    mask[5, 5] = True  # a speck
    mask[30, 40] = False  # and a pinhole

    rings = outlines(mask)

    assert len(rings) == 2
    assert np.array_equal(polygons_to_mask(rings, SIZE), full)
    assert bounding_box(mask) == (5, 5, 360, 190)
    assert bounding_box(np.zeros(SIZE, np.bool_)) is None
    assert len(outlines(mask, 0.01)[0]) <= len(rings[0])


def test_base64_may_be_broken_into_lines() -> None:
    data = picture_bytes()

    assert decode_base64(base64.encodebytes(data).decode()) == data
    assert decode_base64(data_uri(data)) == data
    for text in ("", "data:image/png;base64,", "data:image/png,abc", "ab\0c", "é", "FILE:///x"):
        with pytest.raises(RequestError):
            decode_base64(text)


def test_encoded_images_stay_within_their_bytes() -> None:
    image = nano().image(np.zeros((16, 16, 3), np.uint8))
    probe = EncodedImages()
    probe.put("a", image)
    cache = EncodedImages(2 * probe.nbytes)
    for key in "abc":
        cache.put(key, image)
        cache.get("a")

    assert [key in cache for key in "abc"] == [True, False, True]
    assert cache.nbytes == 2 * probe.nbytes
    cache.drop_all("a")
    cache.drop("c")
    assert (len(cache), cache.nbytes) == (0, 0)
    tiny = EncodedImages(1)
    tiny.put("a", image)
    tiny.put("b", image)
    assert "b" in tiny
    assert len(tiny) == 1


class Closing:
    """A session that notes that it was closed."""

    is_closed = False

    def close(self) -> None:
        self.is_closed = True


def test_sessions_are_closed_when_idle_replaced_or_too_many() -> None:
    first, second, third = Closing(), Closing(), Closing()
    idle = Sessions[Closing](8, idle_seconds=-1)
    few = Sessions[Closing](1)

    name = few.add(first)
    assert few.get(name) is first
    few.add(second, "same")
    few.add(third, "same")
    kept = Closing()
    idle.add(kept)

    assert (first.is_closed, second.is_closed, third.is_closed) == (True, True, False)
    assert kept.is_closed
    assert few.close_all() == 1
    with pytest.raises(RequestError, match="no session"):
        few.get("same")


def test_clicks_and_frames_take_their_turns(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A click asks for a click's turn, which comes before any frame's."""
    taken = {"click": 0, "frame": 0}
    turns: Turns = server.service.turns

    def counted(kind: str, real: Any) -> Any:
        taken[kind] += 1
        return real()

    for kind in taken:
        monkeypatch.setattr(turns, kind, partial(counted, kind, getattr(turns, kind)))
    pictures, masks = frames(3)

    predict(server, [{"type": "point", "data": list(click(shapes()[0])), "label": 1}])
    for_image = dict(taken)
    name = start(server, pictures)
    prompt(server, name, 0, masks[0])
    for_prompt = dict(taken)
    propagate(server, name)

    assert for_image == {"click": 2, "frame": 0}  # to encode, and to decode
    assert for_prompt == {"click": 4, "frame": 0}
    assert taken == {"click": 4, "frame": 4}  # three frames, and the end


def test_frames_asked_for_many_times_are_encoded_once(
    server: Running, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoded: list[int] = []
    real = VideoEvents._encode

    def counted(self: VideoEvents, video: Any, frame: int) -> Any:
        encoded.append(frame)
        return real(self, video, frame)

    monkeypatch.setattr(VideoEvents, "_encode", counted)
    path = tmp_path / "clip.mp4"
    write_clip(path, frames(COUNT)[0])
    uri = data_uri(path.read_bytes(), "video/mp4")
    replies: list[Any] = []

    def is_encoded() -> bool:
        replies.append(event(server, uri, "prewarm", task=9, frame=1, window=4))
        return not replies[-1]["value"]["pending"]

    until(is_encoded)
    assert replies[-1]["value"]["cached"] == [0, 1, 2, 3]
    assert sorted(encoded) == [0, 1, 2, 3]

"""A session file is checked whole before anything is built, and can lift no limit."""

import json
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from samgraph import checkpoint
from samgraph.errors import CheckpointError, OptionError
from samgraph.predict.video.session_schema import check_session, read_record
from samgraph.predict.video.sessions import KEY, resume
from samgraph.predict.video.stream import open_stream
from samgraph.predict.video.video import open_video
from tests.golden import scenes
from tests.predict.models import tiny_model

FRAMES = 4
Change = Callable[[dict[str, Any], dict[str, Any]], object]


@cache
def saved(folder: Path, kind: str = "video") -> tuple[str, dict[str, Any]]:
    """The record and the tensors of a good session with one of everything."""
    path = folder / f"{kind}.safetensors"
    if kind == "video":
        video = open_video(tiny_model(), scenes.frames(FRAMES))
        video.add(frame=0, object=1, box=(17, 27, 63, 73), points=[(40, 50)])
        list(video.track(end=1))
        mask = np.zeros(video.size_hw, np.bool_)
        mask[10:40, 10:50] = True
        video.add(frame=3, object="two", mask=mask)
        video.save(path)
    else:
        stream = open_stream(tiny_model())
        stream.step(scenes.frame(0))
        stream.add(object=1, box=(17, 27, 63, 73))
        stream.step(scenes.frame(1))
        stream.save(path)
    found = checkpoint.read(path)
    return found.metadata[KEY], found.tensors


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("sessions")


def setting(*path: Any, to: Any) -> Change:
    """Put a value somewhere into the record."""

    def change(record: dict[str, Any], _: dict[str, Any]) -> None:
        *parents, last = path
        for name in parents:
            record = record[name]
        record[last] = to

    return change


def replacing(ending: str, make: Callable[[Any], Any]) -> Change:
    """Make another tensor of the first one whose name ends so."""

    def change(_: dict[str, Any], tensors: dict[str, Any]) -> None:
        name = next(name for name in tensors if name.endswith(ending))
        tensors[name] = make(tensors[name])

    return change


def nan_bits(array: Any) -> Any:
    """Half floats of which one is no number, as they are kept."""
    wrong = array.copy()
    wrong.reshape(-1)[5] = 0x7FC0
    return wrong


def dropping(ending: str) -> Change:
    return lambda _, tensors: tensors.pop(next(n for n in tensors if n.endswith(ending)))


CHANGES: dict[str, Change] = {
    "a thousand million frames": setting("policy", "memory_frames", to=10**9),
    "more frames than the model has": setting("policy", "memory_frames", to=9),
    "a thousand million pointers": setting("policy", "max_pointers", to=10**9),
    "no stride": setting("policy", "stride", to=0),
    "prompted frames, but none": setting("policy", "max_prompted", to=0),
    "a policy of text": setting("policy", to="mine"),
    "a limit lifted": setting("display", "max_pixels", to=10**12),
    "another option": setting("cache_mb", to=10**9),
    "a threshold of text": setting("display", "mask_threshold", to="0"),
    "truth as a number": setting("display", "overlaps", to=1),
    "a number as truth": setting("position", to=True),
    "an unknown field": setting("extra", to=1),
    "an unknown field of an object": setting("objects", 0, "extra", to=1),
    "an unknown precision": setting("memory_precision", to="fp8"),
    "a position far off": setting("position", to=10**18),
    "no size": setting("size_hw", to=[0, 0]),
    "three sides": setting("size_hw", to=[1, 2, 3]),
    "an object without a name": setting("objects", 0, "name", to=""),
    "an object named by a list": setting("objects", 0, "name", to=[1]),
    "two objects of one name": setting("objects", 1, "name", to=1),
    "a frame twice": setting("objects", 0, "tracked", to=[1, 1]),
    "a frame of text": setting("objects", 0, "tracked", to=["1"]),
    "a frame after the end": setting("objects", 1, "waiting", to=[99]),
    "a frame before the first": setting("objects", 0, "tracked", to=[-1]),
    "a run of one": setting("objects", 0, "runs", to={"0": [1]}),
    "a run in a third direction": setting("objects", 0, "runs", to={"2": [1, 2]}),
    "an answer without end": setting("objects", 0, "answers", to={"0": [1e300, 0.5]}),
    "an answer that is no frame": setting("objects", 0, "answers", to={"first": [0.5, 0.5]}),
    "no answer": setting("objects", 0, "answers", to={}),
    "objects as a mapping": setting("objects", to={}),
    "a million objects": lambda record, _: record.update(objects=[record["objects"][0]] * 5000),
    "nan memory": replacing("prompted.0.mask", nan_bits),
    "nan pointer": replacing(".pointer", lambda a: np.full_like(a, np.nan)),
    "infinite pointer": replacing(".pointer", lambda a: np.full_like(a, np.inf)),
    "a pointer out of range": replacing(".pointer", lambda a: np.full_like(a, 1e30)),
    "logits out of range": replacing(".logits", lambda a: np.full_like(a, -1e20)),
    "no memory of a prompted frame": dropping("prompted.0.mask"),
    "no prompted frame": setting("objects", 1, "waiting", to=[]),
    "memory in bytes": replacing("prompted.0.mask", lambda a: a.astype(np.uint8)),
    "memory in whole numbers": replacing("prompted.0.mask", lambda a: a.astype(np.int64)),
    "memory of another size": replacing("prompted.0.mask", lambda a: a[:-1]),
    "nan logits": replacing(".logits", lambda a: np.full_like(a, np.nan)),
    "truth as logits": replacing(".logits", lambda a: a > 0),
    "labels of nine": replacing(".labels", lambda a: np.full_like(a, 9)),
    "labels as floats": replacing(".labels", lambda a: a.astype(np.float32)),
    "more labels than points": replacing(".labels", lambda a: np.ones(9, np.int64)),
    "points in space": replacing(".points", lambda a: np.ones((1, 3), np.float32)),
    "nan box": replacing(".points", lambda a: np.full_like(a, np.nan)),
    "a mask of another size": replacing("prompt.3.mask", lambda a: a[:5]),
    "a mask of numbers": replacing("prompt.3.mask", lambda a: a.astype(np.float32)),
    "passed frames of three": replacing(".passed", lambda a: np.zeros((4, 3), np.int64)),
    "passed frames far off": replacing(".passed", lambda a: np.full((4, 2), 2**60, np.int64)),
    "no pointer": dropping("prompted.0.pointer"),
    "no answer's logits": dropping(".logits"),
    "no passed frames": dropping(".passed"),
    "a tensor of nobody": lambda _, tensors: tensors.update(more=np.zeros(3, np.float32)),
}


@pytest.mark.parametrize("name", sorted(CHANGES))
def test_a_session_that_was_tampered_with_is_refused_at_once(
    name: str, folder: Path, tmp_path: Path
) -> None:
    text, tensors = saved(folder)
    record, changed = json.loads(text), dict(tensors)
    CHANGES[name](record, changed)
    path = tmp_path / "session.safetensors"
    checkpoint.save(path, changed, metadata={KEY: json.dumps(record)})
    core = tiny_model()

    start = time.process_time()
    with pytest.raises(CheckpointError) as caught:
        resume(core, path, source=scenes.frames(FRAMES))

    assert time.process_time() - start < 1
    assert "session.safetensors" in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        '{"kind": "video", "version": 2, "position": Infinity}',
        '{"kind": "video", "version": 2, "position": 1e999}',
        '{"kind": "video", "version": 2, "kind": "stream"}',
        '{"kind": "video", "version": 2}',
        '{"kind": "video", "version": [1]}',
        '{"kind": ["video"]}',
        "null",
        "7",
        "",
    ],
)
def test_text_that_is_no_record_is_refused(text: str) -> None:
    with pytest.raises(CheckpointError, match=r"session|version"):
        read_record(text, "a.safetensors")


@pytest.mark.parametrize("kind", ["video", "stream"])
def test_what_is_saved_passes(kind: str, folder: Path) -> None:
    text, tensors = saved(folder, kind)

    check_session(read_record(text, "a"), tensors, tiny_model(), "a")


def test_a_stream_waits_for_no_frame_that_has_passed(folder: Path) -> None:
    text, tensors = saved(folder, "stream")
    record = json.loads(text)
    assert record["position"] == 2
    record["objects"][0] |= {"waiting": [0], "prompts": [0], "answers": {"0": [1.0, 1.0]}}

    with pytest.raises(CheckpointError, match="has passed"):
        check_session(read_record(json.dumps(record), "a"), tensors, tiny_model(), "a")


def test_a_frame_of_a_stream_keeps_to_the_limit_of_pixels(folder: Path) -> None:
    text, tensors = saved(folder, "stream")
    huge = np.broadcast_to(np.zeros((1, 1, 3), np.uint8), (8001, 8000, 3))

    with pytest.raises(CheckpointError, match="does not fit"):
        check_session(read_record(text, "a"), {**tensors, "stream.frame": huge}, tiny_model(), "a")


@pytest.mark.parametrize(
    "source", ["/etc/passwd", "/dev/zero", "../other.mp4", "https://example.org/a.mp4", "a\0b"]
)
def test_a_session_names_no_video_outside_its_folder(
    source: str, folder: Path, tmp_path: Path
) -> None:
    text, tensors = saved(folder)
    path = tmp_path / "session.safetensors"
    record = {**json.loads(text), "source": source}
    checkpoint.save(path, tensors, metadata={KEY: json.dumps(record)})

    with pytest.raises(OptionError, match="is not in its folder") as caught:
        resume(tiny_model(), path)

    assert "pass `source=`" in str(caught.value)

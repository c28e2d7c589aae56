"""Sessions on disk: a `.safetensors` file with JSON inside, so nothing in it can run.

    video.save("session.safetensors")
    video = model.resume("session.safetensors")
    for frame in video.track(start=video.position):
        ...

Saved is all that later results depend on: prompts and what came of them, and what is remembered
of each object. Masks that were tracked are not; nor are caches.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from samgraph import checkpoint
from samgraph.checkpoint.source_file import path_text
from samgraph.errors import CheckpointError, OptionError
from samgraph.models.family import SegmentationModel
from samgraph.predict.features import fingerprint
from samgraph.predict.video.automatic import AutomaticObjects
from samgraph.predict.video.options import StreamOptions, VideoOptions, read_options
from samgraph.predict.video.policies.table import policy_of, policy_record
from samgraph.predict.video.session import TrackingSession
from samgraph.predict.video.session_objects import Tensors, read_object, write_object
from samgraph.predict.video.session_schema import (
    DETECTION_OPTIONS,
    FRAME,
    MOST_LISTED,
    PLACEHOLDER,
    THUMBNAIL,
    VERSION,
    SessionRecord,
    check_session,
    read_record,
)
from samgraph.predict.video.stream import Stream, open_stream
from samgraph.predict.video.video import Video, open_video
from samgraph.untrusted.files import real_path

KEY = "samgraph.session"


def save_video(video: Video, path: str | os.PathLike[str]) -> None:
    """Write the session of a video.

    Raises:
        OutputError: The file cannot be written; an earlier one of that name stays.
    """
    record = _record("video", video) | {
        "source": video.origin,
        "size_hw": list(video.size_hw),
        "frames": video.source.length,
        "is_going_back": video.is_going_back,
    }
    _write(path, record, video, {})


def save_stream(stream: Stream, path: str | os.PathLike[str]) -> None:
    """Write the session of a stream, with its current frame, which may still be prompted."""
    image, automatic, options = stream.current_image, stream.automatic, stream.options
    tensors = {} if image is None else {FRAME: image}
    if automatic.thumbnail is not None:
        tensors[THUMBNAIL] = automatic.thumbnail
    record = _record("stream", stream) | {
        "automatic": automatic.described(),
        "detections": {name: getattr(options, name) for name in DETECTION_OPTIONS},
    }
    _write(path, record, stream, tensors)


def resume(core: SegmentationModel, path: str | os.PathLike[str], **options: Any) -> Video | Stream:
    """A session that was saved, to go on with.

    Args:
        core: The model that made it.
        path: The file.
        **options: For a video, `source` where it has moved or was not a file; and any option of
            `open_video` or `open_stream` that is to be another.

    Raises:
        CheckpointError: The file is damaged, is no session, or belongs to another model or video.
        VideoError: The source is missing.
        OptionError: There is no such option.
    """
    name = path_text(path)
    record, tensors = _read(core, name)
    _check_names(record.kind, options)
    given = {**_options(record, options), **options}
    if record.kind == "stream":
        stream = open_stream(core, **given)
        stream.restore(record.position, tensors.get(FRAME))
        _restore(stream, record, tensors)
        stream.automatic = AutomaticObjects.of(record.automatic, stream.states)
        stream.automatic.thumbnail = tensors.get(THUMBNAIL)
        return stream
    source = given.pop("source") if "source" in given else _own_source(record, name)
    video = open_video(core, source, **given)
    _restore_video(video, record, tensors, name)
    return video


def restore_video(video: Video, path: str | os.PathLike[str]) -> None:
    """Put the objects of a saved session into a video that was opened as the saved one was.

    Raises:
        CheckpointError: As `resume`; the video stays as it was.
    """
    name = path_text(path)
    record, tensors = _read(video.model, name)
    _restore_video(video, record, tensors, name)


def _read(core: SegmentationModel, name: str) -> tuple[SessionRecord, Tensors]:
    """The record of a session that this model made, and its tensors, all of it checked."""
    found = checkpoint.read(name)
    record = read_record(found.metadata.get(KEY), name)
    approximation = core.session.options.approximation
    if record.approximation != approximation:
        raise CheckpointError(
            f"`{name}` was made with another approximation",
            got=record.approximation or "exact",
            expected=approximation or "exact",
            hint="load the model with the same `approximation`",
        )
    if record.model != fingerprint(core):
        raise CheckpointError(
            f"`{name}` was made with another model",
            got=f"{record.config}, weights {record.model}",
            expected=f"{core.config.name}, weights {fingerprint(core)}",
        )
    check_session(record, found.tensors, core, name)
    return record, found.tensors


def _own_source(record: SessionRecord, name: str) -> str:
    """The video a session names, if it lies beside the session: no file may point anywhere else.

    Raises:
        OptionError: It does not, or the video was not a file.
    """
    if record.source is None:
        raise OptionError(f"the video of `{name}` was not a file", hint="pass `source=`")
    folder = Path(real_path(name)).parent
    if not Path(real_path(record.source)).is_relative_to(folder):
        raise OptionError(
            f"the video of `{name}` is not in its folder",
            got=f"`{record.source}`",
            hint="pass `source=`, if that is the video you mean",
        )
    return record.source


def _restore_video(video: Video, record: SessionRecord, tensors: Tensors, name: str) -> None:
    frames = video.source.length
    if video.size_hw != record.size_hw or frames != record.frames:
        height, width = record.size_hw
        raise CheckpointError(
            f"`{name}` belongs to another video",
            got=f"{video.size_hw[1]} x {video.size_hw[0]}, {frames} frames",
            expected=f"{width} x {height}, {record.frames} frames",
        )
    _restore(video, record, tensors)
    video.position, video.is_going_back = record.position, record.is_going_back


def _record(kind: str, session: Video | Stream) -> dict[str, Any]:
    """What a session is, apart from its objects."""
    return {
        "version": VERSION,
        "kind": kind,
        "config": session.model.config.name,
        "model": fingerprint(session.model),
        "approximation": session.model.session.options.approximation,
        "position": session.position,
        "length": session.length,
        "memory_precision": session.options.memory_precision,
        "objects_at_once": session.options.objects_at_once,
        "display": asdict(session.display),
        "policy": policy_record(session.policy),
        "numbers": [
            {"name": name, "number": number}
            for name, number in list(session.numbers.items())[-MOST_LISTED:]
        ],
    }


def _write(
    path: str | os.PathLike[str],
    record: dict[str, Any],
    session: TrackingSession,
    tensors: dict[str, NDArray[Any]],
) -> None:
    record["objects"] = [
        write_object(session, obj, f"object.{index}", tensors)
        for index, obj in enumerate(session.states.values())
    ]
    if not tensors:
        tensors[PLACEHOLDER] = np.zeros(1, np.uint8)
    checkpoint.save(path, tensors, precision="fp32", metadata={KEY: json.dumps(record)})


def _restore(session: TrackingSession, record: SessionRecord, tensors: Tensors) -> None:
    session.numbers.update({entry["name"]: entry["number"] for entry in record.numbers})
    found = [
        read_object(session, described, f"object.{index}", tensors)
        for index, described in enumerate(record.objects)
    ]
    session.states.update({obj.name: obj for obj in found})


def _options(record: SessionRecord, options: Mapping[str, Any]) -> dict[str, Any]:
    """How the session was opened."""
    given: dict[str, Any] = {
        "memory_precision": record.memory_precision,
        "objects_at_once": record.objects_at_once,
        **record.display,
        **record.detections,
    }
    if record.length is not None:
        given["length"] = record.length
    if record.policy is not None:
        given["policy"] = policy_of(record.policy)
    elif "policy" not in options:
        raise OptionError("this session had a memory policy of its own", hint="pass `policy=`")
    return given


def _check_names(kind: str, options: Mapping[str, Any]) -> None:
    """Refuse options that such a session does not have."""
    options = {name: value for name, value in options.items() if name != "source"}
    read_options(VideoOptions if kind == "video" else StreamOptions, options, kind)

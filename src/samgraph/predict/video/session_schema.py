"""What a session file may contain. All of it is checked here, before anything is built.

A session is a `.safetensors` file: JSON in its metadata, arrays beside it. Each field has a type
and a range, every tensor a name that the JSON accounts for, the shape the model gives it, and
finite values. A file that keeps to this can do no more than a user could by prompting.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from samgraph.errors import CheckpointError
from samgraph.media.image.reading import MAX_PIXELS, MAX_SIDE
from samgraph.models.family import SegmentationModel
from samgraph.predict.prompts import MOST_POINTS
from samgraph.predict.video.automatic import THUMBNAIL as THUMBNAIL_SIDE
from samgraph.predict.video.automatic import automatic_schema
from samgraph.predict.video.policies.history import COLUMNS
from samgraph.predict.video.policies.table import policy_schema
from samgraph.runtime import APPROXIMATIONS
from samgraph.untrusted.schema import (
    Schema,
    SchemaError,
    either,
    flag,
    integer_key,
    list_of,
    mapping_of,
    number,
    one_of,
    optional,
    record,
    text,
    whole,
)
from samgraph.untrusted.text import shown, strict_json

Tensors = Mapping[str, NDArray[Any]]

VERSION = 3
FRAME, THUMBNAIL, PLACEHOLDER = "stream.frame", "stream.thumbnail", "empty"
MOST_FRAMES = 2**31
MOST_OBJECTS = 4096
MOST_LISTED = 20_000  # frames of an object that have memories or prompts; names that were used
FAR = 1e6  # pixels, logits, memory: sums of products of such numbers are finite

_INDEX = whole(-MOST_FRAMES, MOST_FRAMES)
_INDICES = list_of(_INDEX, MOST_LISTED)
_LOGIT = number(-FAR, FAR)
_NAME = either(whole(-(2**63), 2**63), text(256))
_OBJECT = record(
    {
        "name": _NAME,
        "prompted": _INDICES,
        "tracked": _INDICES,
        "answers": mapping_of(
            integer_key(-MOST_FRAMES, MOST_FRAMES), list_of(_LOGIT, 2, least=2), MOST_LISTED
        ),
        "prompts": _INDICES,
        "waiting": _INDICES,
        "runs": mapping_of(one_of("0", "1"), list_of(_INDEX, 2, least=2), 2),
    }
)
_SHARED: dict[str, Schema] = {
    "version": one_of(VERSION),
    "kind": one_of("video", "stream"),
    "config": text(64),
    "model": text(64),
    "approximation": optional(one_of(*APPROXIMATIONS)),
    "position": whole(-1, MOST_FRAMES),
    "length": optional(whole(1, MOST_FRAMES)),
    "memory_precision": one_of("bf16", "fp32"),
    "objects_at_once": optional(whole(1, MOST_FRAMES)),
    "display": record(
        {
            "mask_threshold": _LOGIT,
            "score_threshold": _LOGIT,
            "overlaps": flag,
            "fill_holes": whole(0, MAX_PIXELS),
        }
    ),
    "policy": optional(policy_schema),
    "objects": list_of(_OBJECT, MOST_OBJECTS),
    "numbers": list_of(record({"name": _NAME, "number": whole(-(2**63), 2**63)}), MOST_LISTED),
}
_VIDEO = record(
    {
        **_SHARED,
        "source": optional(text(4096)),
        "size_hw": list_of(whole(1, MAX_SIDE), 2, least=2),
        "frames": optional(whole(0, MOST_FRAMES)),
        "is_going_back": flag,
    }
)
_DETECTIONS: dict[str, Schema] = {
    "match_iou": number(0, 1),
    "min_score": number(-1e30, 1e30),
    "end_after": whole(1, MOST_FRAMES),
    "max_objects": whole(1, MOST_FRAMES),
}
DETECTION_OPTIONS = tuple(_DETECTIONS)
_STREAM = record(
    {**_SHARED, "automatic": automatic_schema(_NAME), "detections": record(_DETECTIONS)}
)


@dataclass(frozen=True, slots=True)
class SessionRecord:
    """The JSON of a session; `source` and on are those of a video, the last two of a stream."""

    version: int
    kind: str
    config: str
    model: str
    approximation: str | None
    position: int
    length: int | None
    memory_precision: str
    objects_at_once: int | None
    display: Mapping[str, Any]
    policy: Mapping[str, Any] | None
    objects: tuple[Mapping[str, Any], ...]
    numbers: tuple[Mapping[str, Any], ...]
    source: str | None = None
    size_hw: tuple[int, int] = (0, 0)
    frames: int | None = None
    is_going_back: bool = False
    automatic: Mapping[str, Any] = field(default_factory=dict)
    detections: Mapping[str, Any] = field(default_factory=dict)


def read_record(written: str | None, name: str) -> SessionRecord:
    """The record of the session file `name`, from the text in its metadata.

    Raises:
        CheckpointError: There is no text, or it is not what `video.save` or `stream.save` wrote.
    """
    try:
        found = None if written is None else strict_json(written)
    except ValueError as error:
        raise _damaged(name, str(error)) from error
    if not isinstance(found, Mapping) or found.get("kind") not in ("video", "stream"):
        raise CheckpointError(f"`{shown(name)}` is not a saved session")
    if found.get("version") != VERSION:
        raise CheckpointError(
            f"`{shown(name)}` was saved by another version of samgraph",
            got=shown(f"version {found.get('version')!r}"[:80]),
            expected=f"version {VERSION} of the format",
        )
    schema = _VIDEO if found["kind"] == "video" else _STREAM
    try:
        return SessionRecord(**schema(found, "session"))
    except SchemaError as error:
        raise _damaged(name, str(error)) from error


def check_session(
    found: SessionRecord, tensors: Tensors, model: SegmentationModel, name: str
) -> None:
    """Refuse a session that does not fit the model, or whose tensors are not those it speaks of.

    Raises:
        CheckpointError: It is so.
    """
    if found.policy is not None and found.policy["memory_frames"] > model.config.memory_frames:
        raise _damaged(name, f"it reads {found.policy['memory_frames']} frames of memory")
    names = [obj["name"] for obj in found.objects]
    if len(set(names)) < len(names) or "" in names:
        raise _damaged(name, "two objects have one name, or one has none")
    for key in ("name", "number"):
        if len({entry[key] for entry in found.numbers}) < len(found.numbers):
            raise _damaged(name, f"two objects in `numbers` have one {key}")
    for obj in found.objects:
        _check_frames(obj, found, name)
    rules = {f"object.{index}": obj for index, obj in enumerate(found.objects)}
    expected = dict(_expected(rules, tensors, found, model))
    unknown = sorted(tensors.keys() - expected.keys())
    if unknown:
        raise _damaged(name, f"`{shown(unknown[0])}` belongs to nothing")
    for tensor, rule in expected.items():
        if tensor not in tensors:
            raise _damaged(name, f"`{tensor}` is missing")
        rule.check(tensors[tensor], tensor, name)


def _check_frames(obj: Mapping[str, Any], found: SessionRecord, name: str) -> None:
    """Frames are listed once, are in the video, and prompted ones have answers."""
    end = found.frames if found.kind == "video" else found.position
    for key in ("prompted", "tracked", "prompts", "waiting"):
        listed = obj[key]
        if len(set(listed)) < len(listed):
            raise _damaged(name, f"`{key}` of an object has a frame twice")
        if end is not None and listed and max(listed) >= end:
            raise _damaged(name, f"`{key}` of an object has frame {max(listed)} of {end}")
        # Only what another session remembered (`remember`) comes before the first frame.
        if key != "prompted" and listed and min(listed) < 0:
            raise _damaged(name, f"`{key}` of an object has frame {min(listed)}")
    if set(obj["prompts"]) != set(obj["answers"]) or not set(obj["waiting"]) <= set(obj["answers"]):
        raise _damaged(name, "the prompts of an object and their answers are of different frames")
    if set(obj["prompted"]) & set(obj["tracked"]):
        raise _damaged(name, "an object has a frame that is both prompted and tracked")
    if not obj["prompted"] and not obj["waiting"]:
        raise _damaged(name, "an object has no prompted frame")
    if found.kind == "stream" and not set(obj["waiting"]) <= {found.position - 1}:
        raise _damaged(name, "an object waits for a frame of the stream that has passed")


@dataclass(frozen=True, slots=True)
class _Rule:
    """What a tensor must be; None in the shape stands for any length from 1 on."""

    shape: tuple[int | None, ...]
    dtypes: tuple[str, ...] = ("float32",)
    low: float = -FAR
    high: float = FAR
    least: int = 1
    most: int = 2**62

    def check(self, array: NDArray[Any], tensor: str, name: str) -> None:
        sizes = zip(array.shape, self.shape, strict=False)
        fits = array.ndim == len(self.shape) and all(
            size >= self.least if wanted is None else size == wanted for size, wanted in sizes
        )
        if not fits or array.size > self.most or str(array.dtype) not in self.dtypes:
            wanted = ", ".join("any" if size is None else str(size) for size in self.shape)
            raise CheckpointError(
                f"`{shown(name)}` does not fit this model: `{tensor}`",
                got=f"{array.dtype} {list(array.shape)}",
                expected=f"{' or '.join(self.dtypes)} [{wanted}]",
            )
        values = array.view(ml_dtypes.bfloat16) if array.dtype == np.uint16 else array
        if array.dtype.kind == "b" or not array.size:
            return
        with np.errstate(invalid="ignore"):  # what a NaN in bfloat16 would warn of
            is_within = self.low <= values.min() <= values.max() <= self.high
        if not is_within:
            raise _damaged(name, f"`{tensor}` has values that are no numbers, or out of range")


def _expected(
    objects: Mapping[str, Mapping[str, Any]],
    tensors: Tensors,
    found: SessionRecord,
    model: SegmentationModel,
) -> Iterable[tuple[str, _Rule]]:
    """Every tensor that the record speaks of, and what it must be."""
    layout, side = model.memory_layout, model.config.mask_size
    pointer = _Rule((layout.pointer_channels,))
    memory = _Rule((layout.tokens, layout.channels), ("float32", "uint16", "bfloat16"))
    for at, obj in objects.items():
        for store in ("prompted", "tracked"):
            for frame in obj[store]:
                yield f"{at}.{store}.{frame}.pointer", pointer
                if store == "prompted" or f"{at}.{store}.{frame}.mask" in tensors:
                    yield f"{at}.{store}.{frame}.mask", memory
        for frame in obj["answers"]:
            yield f"{at}.answer.{frame}.logits", _Rule((side, side))
            yield f"{at}.answer.{frame}.pointer", pointer
        for frame in obj["prompts"]:
            yield from _prompt_rules(f"{at}.prompt.{frame}", tensors, found)
        yield f"{at}.passed", _Rule((None, 2), ("int64",), -MOST_FRAMES, MOST_FRAMES, least=0)
        frames = tensors.get(f"{at}.observed")
        if frames is not None:
            yield f"{at}.observed", _Rule((None,), ("int64",), -MOST_FRAMES, MOST_FRAMES)
            yield f"{at}.observations", _Rule((frames.size, COLUMNS))
    if found.kind == "stream" and FRAME in tensors:
        yield FRAME, _Rule((None, None, 3), ("uint8",), most=3 * MAX_PIXELS)
    if found.kind == "stream" and THUMBNAIL in tensors:
        yield THUMBNAIL, _Rule((THUMBNAIL_SIDE, THUMBNAIL_SIDE), ("uint8",))
    if PLACEHOLDER in tensors:
        yield PLACEHOLDER, _Rule((1,), ("uint8",))


def _prompt_rules(at: str, tensors: Tensors, found: SessionRecord) -> Iterable[tuple[str, _Rule]]:
    """Points with labels, of which the first two may be a box; a mask has none."""
    points = tensors.get(f"{at}.points")
    most = MOST_POINTS + 2
    count = 0 if points is None else min(len(points.reshape(-1)) // 2, most)
    is_mask = f"{at}.mask" in tensors
    yield f"{at}.points", _Rule((0 if is_mask else count, 2), least=0)
    yield f"{at}.labels", _Rule((0 if is_mask else count,), ("int64",), 0, 3, least=0)
    if is_mask:
        is_video = found.kind == "video"
        yield f"{at}.mask", _Rule(found.size_hw if is_video else (None, None), ("bool",))


def _damaged(name: str, why: str) -> CheckpointError:
    return CheckpointError(f"`{shown(name)}` is a damaged session", got=shown(why))

"""A Nuclio function for CVAT: shapes drawn on one frame are found on the next ones.

CVAT sends `{image (base64), shapes, states}`: first shapes without states, then on each further
frame the states that it was given. A state is the id of a track in the memory of this worker and
the number of the object in it; what SAM 2 remembers is far too large to travel.
"""

import base64
import binascii
import hashlib
import json
import os
import secrets
from collections import OrderedDict
from typing import Any

import numpy as np

import samgraph
from samgraph.errors import PromptError, SamgraphError
from samgraph.formats.cvat import cvat_mask, cvat_points
from samgraph.formats.segment import Segment
from samgraph.media.mask.polygons import mask_to_polygons, polygons_to_mask, ring_area

MOST_TRACKS = 16


class Track:
    """Objects that were drawn on the same frame; each further frame is encoded once for all."""

    def __init__(self, stream: Any, data: bytes) -> None:
        self._stream, self.types = stream, []
        self.types: list[str] = []
        self._seen = _digest(data)
        self._result = stream.step(data)

    def add(self, shape: Any) -> dict[str, Any]:
        """Begin to follow a shape; returns how CVAT may show it until the next frame."""
        kind, points = _shape(shape)
        height, width = self._result.size_hw
        number = len(self.types) + 1
        if kind == "rectangle":
            left, top, right, bottom = points
            box = [max(left, 0), max(top, 0), min(right, width), min(bottom, height)]
            self._stream.add(object=number, box=box)
        else:
            is_mask = kind == "mask"
            corners = np.reshape(points[: len(points) // 2 * 2], (-1, 2))
            mask = (
                cvat_mask(points, (height, width))
                if is_mask
                else (polygons_to_mask([corners], (height, width)))
            )
            self._stream.add(object=number, mask=mask)
        self.types.append(kind)
        return {"type": kind, "points": points}

    def step(self, data: bytes) -> None:
        """Go on to a frame, unless that was the last one."""
        if _digest(data) != self._seen:
            self._result = self._stream.step(data)
            self._seen = _digest(data)

    def shape(self, number: int) -> dict[str, Any] | None:
        """Where an object is on the current frame; None where it cannot be seen."""
        mask, kind = self._result.mask(number), self.types[number - 1]
        return drawn(mask, kind)


class Tracker:
    """The model and the tracks that are running."""

    def __init__(self, model: samgraph.Model) -> None:
        self._model = model
        self._tracks: OrderedDict[str, Track] = OrderedDict()

    def answer(self, body: dict[str, Any]) -> dict[str, Any]:
        """The reply to a request of CVAT: a shape and a state for each that came."""
        data = _bytes(body.get("image"))
        shapes, states = body.get("shapes") or [], body.get("states") or []
        count = max(len(shapes), len(states))
        shapes = [*shapes, *[None] * (count - len(shapes))]
        states = [*states, *[None] * (count - len(states))]
        found, new, name = [], None, ""
        for shape, state in zip(shapes, states, strict=True):
            if state is None:
                if new is None:
                    new, name = Track(self._model.stream(), data), secrets.token_hex(8)
                found.append((new.add(shape), {"track": name, "object": len(new.types)}))
            else:
                track, number = self._find(state)
                track.step(data)
                found.append((track.shape(number), state))
        if new is not None:
            self._keep(name, new)
        return {"shapes": [shape for shape, _ in found], "states": [state for _, state in found]}

    def _find(self, state: Any) -> tuple[Track, int]:
        name = state.get("track") if isinstance(state, dict) else None
        number = state.get("object") if isinstance(state, dict) else None
        track = self._tracks.get(name) if isinstance(name, str) else None
        if track is None:
            raise PromptError("this track is no longer known", hint="start tracking again")
        if not isinstance(number, int) or not 1 <= number <= len(track.types):
            raise PromptError("this track has no such object")
        self._tracks.move_to_end(str(name))
        return track, number

    def _keep(self, name: str, track: Track) -> None:
        self._tracks[name] = track
        while len(self._tracks) > MOST_TRACKS:
            self._tracks.popitem(last=False)


def drawn(mask: Any, kind: str) -> dict[str, Any] | None:
    """A mask as a shape of CVAT; None where it is empty."""
    segment = Segment.from_mask(mask)
    if not segment.area:
        return None
    if kind == "rectangle":
        return {"type": kind, "points": list(map(float, segment.box_xyxy))}
    if kind == "mask":
        return {"type": kind, "points": cvat_points(segment)}
    largest = max(mask_to_polygons(mask, 1.0), key=lambda part: ring_area(part.outer))
    return {"type": kind, "points": largest.outer.ravel().tolist()}


def init_context(context: Any) -> None:
    """Load the model once for all requests."""
    context.user_data.tracker = Tracker(samgraph.load(os.environ.get("SAMGRAPH_MODEL") or None))


def handler(context: Any, event: Any) -> Any:
    """Answer a request."""
    try:
        reply, status = context.user_data.tracker.answer(event.body), 200
    except SamgraphError as error:
        reply, status = {"error": str(error)}, 400
    return context.Response(
        body=json.dumps(reply), headers={}, content_type="application/json", status_code=status
    )


def _shape(shape: Any) -> tuple[str, list[float]]:
    """The type and the numbers of a shape; older versions send the numbers of a rectangle."""
    if isinstance(shape, list):
        shape = {"type": "rectangle", "points": shape}
    kind = shape.get("type") if isinstance(shape, dict) else None
    points = shape.get("points") if isinstance(shape, dict) else None
    if kind not in ("rectangle", "polygon", "mask") or not isinstance(points, list):
        raise PromptError("a shape cannot be tracked", expected="a rectangle, a polygon or a mask")
    if not all(isinstance(value, int | float) for value in points):
        raise PromptError("the points of a shape are not numbers")
    if kind == "rectangle" and len(points) != 4:
        raise PromptError("a rectangle has four numbers", got=len(points))
    return kind, points


def _bytes(text: object) -> bytes:
    try:
        return base64.b64decode(text if isinstance(text, str) else "", validate=True)
    except (binascii.Error, ValueError) as error:
        raise PromptError("`image` is not base64") from error


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()

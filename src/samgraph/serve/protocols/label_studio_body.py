"""The bodies of Label Studio's requests and replies, and what they mean.

Coordinates are in percent of the image; frames are counted from 1.
"""

import secrets
from typing import Annotated, Any

from msgspec import Meta, Struct

from samgraph.formats.label_studio import label_studio_result
from samgraph.formats.segment import Segment, SegmentedImage
from samgraph.serve.protocols.clicks import Clicks, Mask, bounding_box
from samgraph.serve.protocols.label_config import Control
from samgraph.serve.protocols.pictures import data_uri
from samgraph.serve.replies import RequestError
from samgraph.serve.schema import Name, Number

MOST_TASKS = 1000
MOST_REGIONS = 1000
WHOLE = 100.0  # coordinates are in percent
TOLERANCE = 1.0  # how far a polygon may be from the mask, in pixels

Labels = Annotated[list[Name], Meta(max_length=100)]


class KeyFrame(Struct):
    """A rectangle on a frame, counted from 1."""

    frame: Annotated[int, Meta(ge=0, le=2**31 - 1)]
    x: Number
    y: Number
    width: Number
    height: Number
    enabled: bool = True


class RegionValue(Struct, frozen=True):
    """A keypoint has x and y, a rectangle a size as well; a video's rectangle a sequence."""

    x: Number | None = None
    y: Number | None = None
    width: Number | None = None
    height: Number | None = None
    positive: bool | None = None
    keypointlabels: Labels | None = None
    rectanglelabels: Labels | None = None
    labels: Labels | None = None
    sequence: Annotated[list[KeyFrame], Meta(max_length=10_000)] | None = None


class Region(Struct):
    """What the user drew."""

    value: RegionValue = RegionValue()
    type: Name | None = None
    is_positive: bool | int | None = None


class Context(Struct):
    """What the user did, and in the interactive editor what is asked for."""

    result: Annotated[list[Region], Meta(max_length=MOST_REGIONS)] | None = None
    event: Name | None = None
    frame: Number | None = None
    time_ms: Number | None = None
    window: Number | None = None
    direction: Name | None = None
    max_frames: Number | None = None
    max_duration_ms: Number | None = None
    session_id: Name | None = None


class Params(Struct):
    """Beside the context there are credentials, which are ignored."""

    context: Context | None = None


class Task(Struct):
    """A task: its id, and the addresses of its image or video."""

    id: int | Name | None = None
    data: dict[str, Any] = {}


class PredictBody(Struct):
    """What Label Studio asks."""

    tasks: Annotated[list[Task], Meta(max_length=MOST_TASKS)] = []
    label_config: str | None = None
    params: Params | None = None

    @property
    def context(self) -> Context:
        """The context, empty where there is none."""
        return (self.params and self.params.context) or Context()


class SetupBody(Struct):
    """Label Studio's description of itself."""

    hostname: str | None = None
    access_token: str | None = None


def read_clicks(context: Context) -> Clicks:
    """The regions of a context as clicks and a box, in percent."""
    points, labels, box = [], [], None
    for region in context.result or []:
        value = region.value
        if value.x is None or value.y is None:
            continue
        if value.width is not None and value.height is not None and value.width and value.height:
            box = (value.x, value.y, value.x + value.width, value.y + value.height)
        else:
            points.append((value.x, value.y))
            signs = (region.is_positive, value.positive)
            labels.append(int(next((bool(s) for s in signs if s is not None), True)))
    return Clicks(tuple(points), tuple(labels), box)


def chosen_label(context: Context) -> str | None:
    """The label the user had selected when clicking."""
    for region in context.result or []:
        value = region.value
        for labels in (value.keypointlabels, value.rectanglelabels, value.labels):
            if labels:
                return labels[0]
    return None


def region(control: Control, mask: Mask, score: float, label: str | None) -> list[dict[str, Any]]:
    """A mask as a region of a control; none where the mask is empty."""
    box = bounding_box(mask)
    if box is None:
        return []
    height, width = mask.shape
    kind, names = control.type, {}
    if kind.endswith("labels") and (name := control.label(label)) is not None:
        names = {kind: [name]}
    if kind.startswith("bitmask"):
        value: dict[str, Any] = bitmask_value(mask)
    elif kind.startswith("rectangle"):
        value = {**percent_box(box, mask.shape), "rotation": 0}
    else:
        image = SegmentedImage("", (height, width), (Segment.from_mask(mask),))
        is_brush = kind.startswith("brush")
        drawn = label_studio_result(image, polygons=not is_brush, tolerance=TOLERANCE)[0]
        keys = ("format", "rle") if is_brush else ("points", "closed")
        value = {key: drawn["value"][key] for key in keys}
    found = answer(control, kind, {**value, **names})
    size = {"original_width": width, "original_height": height, "image_rotation": 0}
    return [{**found, **size, "score": score}]


def answer(control: Control | None, kind: str, value: dict[str, Any]) -> dict[str, Any]:
    """One entry of a prediction's `result`."""
    names = {} if control is None else {"from_name": control.from_name, "to_name": control.to_name}
    return {
        "id": secrets.token_hex(4),
        **names,
        "type": kind,
        "origin": "manual",
        "value": value,
    }


def bitmask_value(mask: Mask) -> dict[str, Any]:
    """A mask as a picture of its own size."""
    return {
        "imageDataURL": data_uri(mask),
        "width": int(mask.shape[1]),
        "height": int(mask.shape[0]),
    }


def percent_box(box: tuple[int, int, int, int], size_hw: tuple[int, ...]) -> dict[str, float]:
    """A box in percent of the image."""
    height, width = size_hw
    left, top, right, bottom = box
    return {
        "x": left * WHOLE / width,
        "y": top * WHOLE / height,
        "width": (right - left) * WHOLE / width,
        "height": (bottom - top) * WHOLE / height,
    }


def source_of(task: Task, key: str) -> str:
    """The address, path or data URI of a task's image or video.

    Raises:
        RequestError: There is none.
    """
    texts = [value for value in task.data.values() if isinstance(value, str)]
    found = task.data.get(key, texts[0] if texts else None)
    if not isinstance(found, str):
        raise RequestError(422, "the task has no image or video", hint=f"`data.{key or 'image'}`")
    return found

"""The bodies of requests and replies. The OpenAPI document is made from these.

Coordinates are pixels of the upright image, (x, y); masks are COCO's compressed run lengths.
"""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

MOST_POINTS = 1000
MOST_OBJECTS = 4096
LARGEST = 1e9

Number = Annotated[float, Meta(ge=-LARGEST, le=LARGEST)]
Whole = Annotated[int, Meta(ge=0, le=2**31 - 1)]
ObjectNumber = Annotated[int, Meta(ge=1, le=2**31 - 1)]
Side = Annotated[int, Meta(ge=1, le=65_535)]
Name = Annotated[str, Meta(max_length=200)]
Color = Annotated[str, Meta(pattern=r"^#[0-9a-fA-F]{6}$")]
Token = Annotated[str, Meta(max_length=64)]
Point = tuple[Number, Number]
Points = Annotated[list[Point], Meta(max_length=MOST_POINTS)]
Labels = Annotated[list[Literal[0, 1]], Meta(max_length=MOST_POINTS)]
Box = tuple[Number, Number, Number, Number]


class Request(Struct, forbid_unknown_fields=True):
    """A body sent by a client; fields that are not named here are refused."""


class Mask(Request):
    """A mask: size [height, width] and compressed run lengths, as in COCO."""

    size: tuple[Side, Side]
    counts: str


class Prompt(Request):
    """Points with labels (1 inside, 0 outside), a box, a mask."""

    points: Points | None = None
    labels: Labels | None = None
    box: Box | None = None
    mask: Mask | None = None


class PredictBody(Prompt):
    """A prompt on an image; `refine` is the token of an earlier reply.

    A token may be followed by `.0`, `.1` or `.2`: which mask of that reply to refine.
    """

    multimask: bool | None = None
    refine: Token | None = None


class MaskReply(Struct):
    """One mask: the box is left, top, right, bottom; the area is in pixels."""

    rle: Mask
    score: float
    box: tuple[int, int, int, int]
    area: int


class PredictReply(Struct):
    """The masks of a prompt, the index of the best, and a token to refine it by."""

    masks: list[MaskReply]
    best: int
    refine: str


class MasksReply(Struct):
    """Automatic masks, best first."""

    masks: list[MaskReply]


class EverythingBody(Request):
    """Options of automatic masks."""

    points_per_side: Annotated[int, Meta(ge=1, le=64)] | None = None
    pred_iou_thresh: Annotated[float, Meta(ge=0, le=1)] | None = None
    stability_score_thresh: Annotated[float, Meta(ge=0, le=1)] | None = None
    box_nms_thresh: Annotated[float, Meta(ge=0, le=1)] | None = None
    min_mask_region_area: Annotated[int, Meta(ge=0, le=10**6)] | None = None


class DocumentObject(Struct):
    """An object as the page keeps it; `prompts` is the page's own."""

    id: Annotated[int, Meta(ge=-(2**53), le=2**53)] | Name
    name: Name | None = None
    color: Name | None = None
    prompts: Any = None
    mask: Mask | None = None


class Document(Struct):
    """What the page stores with an image."""

    objects: Annotated[list[DocumentObject], Meta(max_length=MOST_OBJECTS)]


class ExportObject(Struct):
    """An object to export."""

    mask: Mask
    id: Annotated[int, Meta(ge=0, le=2**31 - 1)] | Name | None = None
    name: Name | None = None
    color: Color | None = None
    score: Number | None = None


class Effect(Request):
    """An effect on the objects, or on all but the objects; numbers not given have defaults."""

    name: Name
    target: Literal["object", "background"] | None = None
    color: Color | None = None
    strength: Number | None = None
    width: Number | None = None
    size: Number | None = None
    opacity: Number | None = None


class ImageExportBody(Request):
    """What to write: a format of `info`, or `effect`."""

    format: Name
    objects: Annotated[list[ExportObject], Meta(max_length=MOST_OBJECTS)] = []
    effect: Effect | None = None
    tolerance: Annotated[float, Meta(ge=0, le=100)] = 0.0
    crop: bool = False


class VideoExportBody(Request):
    """What to write of a tracked video."""

    format: Name
    effect: Effect | None = None
    tolerance: Annotated[float, Meta(ge=0, le=100)] = 0.0
    crop: bool = False


class ImageReply(Struct, omit_defaults=False):
    """An image; `seconds` is what encoding took."""

    id: str
    name: str
    width: int
    height: int
    seconds: float = 0.0
    document: msgspec.Raw | None = None


class VideoObject(Struct):
    """An object of a video, and the frames it is prompted on."""

    id: int
    name: str | None = None
    color: str | None = None
    prompts: list[int] = []


class Tracking(Struct):
    """A running track."""

    frame: int
    done: int
    total: int
    fps: float
    seconds_left: float | None


class Span(Struct, frozen=True):
    """Frames to track: from `first` to `last`, both included; backward where last < first."""

    first: Whole
    last: Whole
    is_reverse: bool = False

    def __len__(self) -> int:
        return abs(self.last - self.first) + 1


class VideoReply(Struct):
    """A video; `objects` and `tracking` as they are now.

    `interrupted` is what a track that ended with the server was to do.
    """

    id: str
    name: str
    width: int
    height: int
    frames: int | None
    fps: float
    duration: float | None
    objects: list[VideoObject] = []
    tracking: Tracking | None = None
    interrupted: list[Span] = []


class ObjectBody(Request):
    """The name and colour of an object."""

    name: Name | None = None
    color: Color | None = None


class VideoPromptBody(Request):
    """A prompt on a frame, which replaces what the object had there."""

    frame: Whole
    object: ObjectNumber
    points: Points | None = None
    labels: Labels | None = None
    box: Box | None = None
    mask: Mask | None = None


class ObjectOnFrame(Struct):
    """One object on one frame."""

    id: int
    rle: Mask
    score: float
    present: bool
    box: tuple[int, int, int, int]
    area: int
    prompted: bool = False
    stale: bool = False


class FrameReply(Struct):
    """The objects of a frame that are known there."""

    frame: int
    objects: list[ObjectOnFrame]


class FramesReply(Struct):
    """Several frames."""

    frames: list[FrameReply]


class TrackBody(Request):
    """Where to track from, in which direction, and how many frames each way."""

    start: Whole | None = None
    direction: Literal["forward", "backward", "both"] = "forward"
    frames: Annotated[int, Meta(ge=1, le=2**31 - 1)] | None = None


class TrackReply(Struct):
    """How many frames will be tracked."""

    total: int


Range = tuple[int, int]


class Lane(Struct):
    """One object on the timeline: frames, and ranges of frames, ends included."""

    id: int
    prompts: list[int]
    tracked: list[Range]
    present: list[Range]
    low: list[Range]
    stale: list[Range]


class Review(Struct):
    """A frame to review."""

    frame: int
    object: int
    reason: Literal["area jump", "low score", "disappeared", "came back"]


class TimelineReply(Struct):
    """The timeline of a video."""

    frames: int | None
    objects: list[Lane]
    review: list[Review]


class JobReply(Struct):
    """A job that was begun."""

    job: str


class JobState(Struct):
    """How far a job is."""

    state: Literal["waiting", "running", "done", "failed", "cancelled"]
    done: int
    total: int
    message: str | None = None
    hint: str | None = None
    file: str | None = None


class SessionReply(Struct):
    """A session on disk; `used` is in seconds since 1970."""

    id: str
    kind: Literal["image", "video"]
    name: str
    bytes: int
    used: float


class ModelInfo(Struct):
    """The model that answers."""

    name: str
    image_size: int


class Limits(Struct):
    """What is accepted."""

    max_upload_bytes: int
    max_pixels: int
    max_sessions: int
    idle_seconds: float


class FormatInfo(Struct):
    """A format that results can be written in."""

    name: str
    extension: str
    title: str


class FormatsInfo(Struct):
    """The formats of images and of videos."""

    image: list[FormatInfo]
    video: list[FormatInfo]


class EffectParam(Struct):
    """A number of an effect."""

    name: str
    min: float
    max: float
    default: float


class EffectInfo(Struct):
    """An effect."""

    name: str
    title: str
    target: str
    params: list[EffectParam]


class SampleInfo(Struct):
    """A sample that is ready to be clicked on; `thumbnail` is an address."""

    id: str
    title: str
    kind: Literal["image", "video"]
    thumbnail: str


class InfoReply(Struct):
    """What this server is."""

    version: str
    model: ModelInfo
    engine: str
    device: str
    precision: str
    limits: Limits
    formats: FormatsInfo
    effects: list[EffectInfo]
    samples: list[SampleInfo]


class Health(Struct):
    """Whether the server runs, or is ready."""

    status: str

"""X-AnyLabeling's remote server, images: `/v1/models` and `/v1/predict`.

    {"model": "sam2", "image": DATA_URI, "params": {"marks": [{"type": "point", "data": [x, y],
     "label": 1}, {"type": "rectangle", "data": [x0, y0, x1, y1]}], "epsilon_factor": 0.001}}

Errors are replies of status 200 with `success: false`, which the client shows to the user; only
a busy server answers 503.
"""

from typing import Annotated, Any, Literal

import numpy as np
from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from samgraph.errors import PromptError
from samgraph.media.mask.polygons import Ring
from samgraph.predict.image.encoded import EncodedImage
from samgraph.serve.protocols.backend import Backend, route, sentence
from samgraph.serve.protocols.clicks import Clicks, Mask, bounding_box, outlines, segment
from samgraph.serve.protocols.pictures import decode_base64
from samgraph.serve.replies import Problem, RequestError, json_reply
from samgraph.serve.schema import Name, Number
from samgraph.untrusted.text import shown

IMAGE_MODEL, VIDEO_MODEL = "sam2", "sam2_video"
# The label that the client replaces by the one its user chooses.
LABEL = "AUTOLABEL_OBJECT"
EPSILON = 0.001
BUTTONS = (
    "button_add_point",
    "button_remove_point",
    "button_add_rect",
    "button_clear",
    "button_finish_object",
)
FINENESS = {"name": "mask_fineness_slider", "value": 10}
VIDEO_BUTTONS = ("button_add_point", "button_remove_point", "button_clear", "button_run")
CODES = {
    "bad_input": "INVALID_REQUEST",
    "not_found": "NOT_FOUND",
    "too_large": "TOO_LARGE",
    "busy": "QUEUE_FULL",
}

OutputMode = Literal["polygon", "rectangle", "rotation"]


class Mark(Struct):
    """A click, or a rectangle by two corners."""

    type: Name
    data: Annotated[list[Number], Meta(max_length=4)]
    label: int | None = 1


class PredictParams(Struct, frozen=True):
    """What the client's widgets are set to; others are ignored."""

    marks: Annotated[list[Mark], Meta(max_length=1000)] = []
    epsilon_factor: Annotated[float, Meta(ge=0, le=1)] | None = None
    output_mode: OutputMode | None = None
    text_prompt: str | None = None


class PredictBody(Struct):
    """An image and what was marked on it."""

    model: Name
    image: str
    params: PredictParams = PredictParams()


def models(name: str) -> dict[str, Any]:
    """The reply of `/v1/models`: one model for images, the same for videos."""
    buttons = [{"name": button, "value": None} for button in BUTTONS]
    tracking = [{"name": button, "value": None} for button in VIDEO_BUTTONS]
    keep = {"name": "toggle_preserve_existing_annotations", "value": False}
    return {
        IMAGE_MODEL: {
            "display_name": f"SAM 2 ({name})",
            "widgets": [*buttons, FINENESS, keep],
            "params": {"epsilon_factor": EPSILON},
            "capabilities": {"points": True, "rectangles": True, "text": False},
            "batch_processing_mode": "default",
        },
        VIDEO_MODEL: {
            "display_name": f"SAM 2 video ({name})",
            "widgets": [*tracking, FINENESS, keep],
            "params": {"epsilon_factor": EPSILON},
            "capabilities": {"points": True, "rectangles": False, "text": False},
            "batch_processing_mode": "video",
        },
    }


def read_clicks(params: PredictParams) -> list[Clicks]:
    """The marks as prompts: all points and one rectangle are one object, else one per rectangle.

    Raises:
        PromptError: A mark makes no sense to SAM 2.
    """
    if params.text_prompt and not params.marks:
        raise PromptError("SAM 2 finds objects by points and rectangles", got="a text")
    points, labels, boxes = [], [], []
    for mark in params.marks:
        if mark.type == "point" and len(mark.data) == 2 and mark.label in (0, 1):
            points.append((mark.data[0], mark.data[1]))
            labels.append(int(mark.label))
        elif mark.type == "rectangle" and len(mark.data) == 4 and mark.label != 0:
            left, top, right, bottom = mark.data
            boxes.append((left, top, right, bottom))
        else:
            raise PromptError(
                f"a mark of type `{shown(mark.type, 40)}` with {len(mark.data)} numbers and label"
                f" `{mark.label}` is not understood",
                expected="a point with label 1 or 0, or a rectangle with label 1",
            )
    if len(boxes) < 2:
        box = boxes[0] if boxes else None
        return [Clicks(tuple(points), tuple(labels), box)] if points or boxes else []
    if points:
        raise PromptError(
            "several rectangles are several objects, and points belong to one",
            hint="mark one object at a time",
        )
    return [Clicks(box=box) for box in boxes]


def shapes(
    mask: Mask,
    score: float,
    *,
    epsilon: float | None = None,
    mode: OutputMode | None = None,
    group: int | None = None,
) -> list[dict[str, Any]]:
    """A mask as shapes of the client: a polygon for each part that is not a speck, or a rectangle.

    Args:
        mask: bool [H, W].
        score: The predicted IoU.
        epsilon: How far a polygon may be from the mask, as a fraction of its length.
        mode: A polygon, an upright rectangle, or the smallest rectangle at any angle.
        group: The number of the object.
    """
    rings: list[list[list[float]]] = []
    if mode == "rectangle":
        if (box := bounding_box(mask)) is not None:
            left, top, right, bottom = map(float, box)
            rings = [[[left, top], [right, top], [right, bottom], [left, bottom]]]
    elif mode == "rotation":
        rings = [smallest_rectangle(ring).tolist() for ring in outlines(mask)[:1]]
    else:
        fine = EPSILON if epsilon is None else epsilon
        rings = [[*ring, ring[0]] for ring in map(np.ndarray.tolist, outlines(mask, fine))]
    kind = mode or "polygon"
    return [
        {"label": LABEL, "shape_type": kind, "points": ring, "score": score, "group_id": group}
        for ring in rings
    ]


def smallest_rectangle(ring: Ring) -> Ring:
    """The corners [4, 2] of the rectangle of least area around a ring; one side lies on an edge."""
    hull = _convex_hull(ring)
    edges = np.roll(hull, -1, axis=0) - hull
    along = edges / np.hypot(*edges.T)[:, None]  # [K, 2]
    across = along @ np.array([[0.0, 1.0], [-1.0, 0.0]])
    u, v = along @ hull.T, across @ hull.T  # [K, K]
    low = np.stack([u.min(1), v.min(1)], 1)
    high = np.stack([u.max(1), v.max(1)], 1)
    best = int((high - low).prod(1).argmin())
    (u0, v0), (u1, v1) = low[best], high[best]
    corners = np.array([[u0, v0], [u1, v0], [u1, v1], [u0, v1]])
    found: Ring = corners @ np.stack([along[best], across[best]])
    return found


def error_form(status: int, problem: Problem) -> tuple[int, object]:
    """`success: false` with status 200; 503 stays, and so does what was not foreseen."""
    code = CODES.get(problem.code, problem.code.upper())
    body = {"success": False, "error": {"code": code, "message": sentence(problem)}}
    return status if status in (500, 503) else 200, body


def success(data: object) -> Response:
    """A reply of success."""
    return json_reply({"success": True, "data": data})


def check_model(model: str, name: str) -> None:
    """Refuse the name of another model.

    Raises:
        RequestError: It is not `name`.
    """
    if model != name:
        raise RequestError(
            404, f"there is no model `{shown(model, 40)}` here", code="MODEL_NOT_FOUND", hint=name
        )


def routes(backend: Backend) -> list[Route]:
    """The routes for images."""

    async def list_models(request: Request) -> Response:
        return success(models(backend.name))

    async def model_info(request: Request) -> Response:
        name = request.path_params["model"]
        found = models(backend.name).get(name)
        if found is None:
            check_model(name, IMAGE_MODEL)
        return success({"model_id": name, **(found or {})})

    async def predict(request: Request) -> Response:
        body = await backend.body(request, PredictBody)
        if body.model != VIDEO_MODEL:  # which the client also asks about single images
            check_model(body.model, IMAGE_MODEL)
        params = body.params
        clicks = read_clicks(params)
        found: list[dict[str, Any]] = []
        if clicks:
            image = await backend.image(request, decode_base64(body.image))
            found = await backend.work(request, lambda: _marked(image, clicks, params))
        return success({"shapes": found, "description": "", "replace": False})

    return [
        route("/v1/models", list_models, error_form, "GET"),
        route("/v1/models/{model}/info", model_info, error_form, "GET"),
        route("/v1/predict", predict, error_form),
    ]


def _marked(
    image: EncodedImage, clicks: list[Clicks], params: PredictParams
) -> list[dict[str, Any]]:
    """The shapes of all objects that were marked."""
    style: dict[str, Any] = {"epsilon": params.epsilon_factor, "mode": params.output_mode}
    results = [segment(image, item) for item in clicks]
    found = [shapes(result.mask, float(result.scores[0]), **style) for result in results]
    return [shape for some in found for shape in some]


def _convex_hull(points: Ring) -> Ring:
    """The corners of the convex hull (Andrew's monotone chain), [K, 2]."""
    ordered = sorted({(float(x), float(y)) for x, y in points})

    def half(items: list[tuple[float, float]]) -> list[tuple[float, float]]:
        chain: list[tuple[float, float]] = []
        for x, y in items:
            while len(chain) > 1:
                (ax, ay), (bx, by) = chain[-2:]
                if (bx - ax) * (y - ay) - (by - ay) * (x - ax) > 0:
                    break
                chain.pop()
            chain.append((x, y))
        return chain[:-1]

    return np.array(half(ordered) + half(ordered[::-1]))

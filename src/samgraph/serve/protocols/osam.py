"""osam's server: `POST /api/generate`, one object from clicks or a box.

    {"model": "sam2:tiny", "image": BASE64, "prompt": {"points": [[x, y]], "point_labels": [1]}}

Labels are 0 outside, 1 inside, 2 and 3 the corners of a box. The reply has one annotation: the
box, inclusive, and the mask inside it as a PNG.
"""

import base64
from typing import Annotated, Any

from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from samgraph.errors import PromptError
from samgraph.media.image.reading import encode_image
from samgraph.predict.image.encoded import EncodedImage
from samgraph.serve.protocols.backend import Backend, route, sentence
from samgraph.serve.protocols.clicks import Clicks, Mask, bounding_box, segment
from samgraph.serve.protocols.pictures import decode_base64
from samgraph.serve.replies import Problem, RequestError, json_reply
from samgraph.serve.schema import Name, Points
from samgraph.untrusted.text import shown

BOX_CORNERS = (2, 3)
FAMILIES = ("sam2", "samgraph")


class OsamPrompt(Struct):
    """Points with labels; texts are for other models."""

    points: Points | None = None
    point_labels: Annotated[list[int], Meta(max_length=1000)] | None = None
    texts: list[str] | None = None


class GenerateBody(Struct):
    """What osam's client sends; other fields are ignored."""

    model: Name
    image: str | None = None
    prompt: OsamPrompt | None = None


def read_clicks(prompt: OsamPrompt | None) -> Clicks:
    """The prompt as clicks and a box.

    Raises:
        PromptError: Labels and points do not fit, or it is a text.
    """
    if prompt is None or not prompt.points:
        asked = prompt is not None and prompt.texts
        raise PromptError(
            "SAM 2 finds objects by points and boxes" if asked else "there is no prompt",
            got="a text" if asked else None,
            expected="`prompt.points` and `prompt.point_labels`",
        )
    labels = prompt.point_labels or []
    if len(labels) != len(prompt.points):
        raise PromptError(
            "every point needs a label", got=f"{len(prompt.points)} points, {len(labels)} labels"
        )
    clicks = [
        (xy, label) for xy, label in zip(prompt.points, labels, strict=True) if label in (0, 1)
    ]
    corners = [(xy, label) for xy, label in zip(prompt.points, labels, strict=True) if label > 1]
    if len(clicks) + len(corners) < len(labels) or any(kind > 3 for _, kind in corners):
        raise PromptError(
            "there is no such label", expected="0 outside, 1 inside, 2 and 3 the corners of a box"
        )
    if corners and tuple(sorted(kind for _, kind in corners)) != BOX_CORNERS:
        raise PromptError("a box has two corners, labels 2 and 3", got=f"{len(corners)} corners")
    by_kind = {kind: xy for xy, kind in corners}
    box = (*by_kind[2], *by_kind[3]) if corners else None
    return Clicks(tuple(xy for xy, _ in clicks), tuple(label for _, label in clicks), box)


def annotations(mask: Mask, score: float) -> list[dict[str, Any]]:
    """The mask as osam's list of annotations; empty where nothing was found."""
    box = bounding_box(mask)
    if box is None:
        return []
    left, top, right, bottom = box
    crop = mask[top:bottom, left:right].astype("uint8") * 255
    corners = {"xmin": left, "ymin": top, "xmax": right - 1, "ymax": bottom - 1}
    picture = base64.b64encode(encode_image(crop)).decode("ascii")
    return [{"bounding_box": corners, "text": None, "score": score, "mask": picture}]


def error_form(status: int, problem: Problem) -> tuple[int, object]:
    """osam's server is built on FastAPI: `{"detail": "..."}`."""
    return status, {"detail": sentence(problem)}


def routes(backend: Backend) -> list[Route]:
    """The routes of osam's server."""

    async def generate(request: Request) -> Response:
        body = await backend.body(request, GenerateBody)
        if not body.model.startswith(FAMILIES):
            raise RequestError(
                400,
                f"there is no model `{shown(body.model, 40)}`",
                hint=f"this server runs {backend.name}; ask for `sam2:latest`",
            )
        if body.image is None:
            raise RequestError(400, "there is no image", hint="send it as base64 in `image`")
        clicks = read_clicks(body.prompt)
        image = await backend.image(request, decode_base64(body.image))
        found = await backend.work(request, lambda: _annotated(image, clicks))
        return json_reply({"model": body.model, "image_embedding": None, "annotations": found})

    return [route("/api/generate", generate, error_form)]


def _annotated(image: EncodedImage, clicks: Clicks) -> list[dict[str, Any]]:
    result = segment(image, clicks)
    return annotations(result.mask, float(result.scores[0]))

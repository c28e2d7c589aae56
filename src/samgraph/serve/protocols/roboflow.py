"""Roboflow inference's SAM 2 routes: `/sam2/embed_image` and `/sam2/segment_image`.

    {"image": {"type": "base64", "value": BASE64}, "image_id": "a",
     "prompts": {"prompts": [{"box": {"x", "y", "width", "height"}, "points": [{"x", "y",
     "positive"}]}]}, "format": "json"}

A box is given by its centre. Each prompt asks for one object and gets one prediction: polygons
(`json`), COCO's run lengths (`rle`); `binary` is an `.npz` file of all masks and logits.
"""

import io
import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from samgraph.errors import PromptError
from samgraph.media.mask import rle as run_lengths
from samgraph.predict.image.encoded import EncodedImage
from samgraph.predict.image.result import Floats, Result
from samgraph.serve.protocols.backend import Backend, route, sentence
from samgraph.serve.protocols.clicks import Clicks, outlines, segment
from samgraph.serve.protocols.pictures import decode_base64, digest
from samgraph.serve.replies import Problem, RequestError, json_reply
from samgraph.serve.schema import Name, Number

MOST_PROMPTS = 64
MOST_IMAGES = 256

Format = Literal["json", "rle", "binary"]


class ImageField(Struct):
    """An image; only base64 is taken."""

    type: Name
    value: str


class CentreBox(Struct):
    """A box by its centre."""

    x: Number
    y: Number
    width: Number
    height: Number


class SignedPoint(Struct):
    """A click."""

    x: Number
    y: Number
    positive: bool = True


class PromptField(Struct):
    """One object."""

    box: CentreBox | None = None
    points: Annotated[list[SignedPoint], Meta(max_length=1000)] | None = None


class PromptSet(Struct):
    """Several objects."""

    prompts: Annotated[list[PromptField], Meta(max_length=MOST_PROMPTS)] | None = None


class EmbedBody(Struct):
    """An image to encode ahead of clicks."""

    image: ImageField | None = None
    image_id: Name | None = None


class SegmentBody(EmbedBody):
    """Objects to segment. Fields of other models are ignored."""

    prompts: PromptSet | Annotated[list[PromptField], Meta(max_length=MOST_PROMPTS)] | None = None
    format: Format | None = "json"
    multimask_output: bool = True
    save_logits_to_cache: bool = False
    load_logits_from_cache: bool = False


def read_clicks(body: SegmentBody) -> list[Clicks]:
    """The prompts as clicks and boxes.

    Raises:
        PromptError: There is none.
    """
    given = body.prompts.prompts if isinstance(body.prompts, PromptSet) else body.prompts
    if not given:
        raise PromptError("there is no prompt", expected="`prompts` with points or boxes")
    return [_clicks(prompt) for prompt in given]


def predict(
    image: EncodedImage, clicks: list[Clicks], multimask: bool, logits: list[Floats] | None
) -> list[Result]:
    """The best mask of each prompt, in order; `logits` are earlier answers, [L, L] each."""
    earlier: Sequence[Floats | None] = [None] * len(clicks)
    if logits is not None and len(logits) == len(clicks):
        earlier = logits
    return [
        segment(image, item, multimask=multimask, logits=low)
        for item, low in zip(clicks, earlier, strict=True)
    ]


def predictions(results: list[Result], form: Format) -> list[dict[str, Any]]:
    """A prediction per object: polygons of whole pixels, or run lengths."""
    found = []
    for result in results:
        if form == "rle":
            masks: object = run_lengths.to_json(result.segments[0].rle)
        else:
            masks = [np.rint(ring).astype(int).tolist() for ring in outlines(result.mask)]
        kind = "rle" if form == "rle" else "polygon"
        found.append({"masks": masks, "confidence": float(result.scores[0]), "format": kind})
    return found


def archive(results: list[Result]) -> bytes:
    """All masks and their low-resolution logits as the bytes of an `.npz` file."""
    buffer = io.BytesIO()
    masks = np.concatenate([result.masks for result in results])
    low = np.concatenate([result.logits for result in results])
    np.savez_compressed(buffer, masks=masks, low_res_masks=low)
    return buffer.getvalue()


def error_form(status: int, problem: Problem) -> tuple[int, object]:
    """Roboflow's form, which its client shows: `{"message": "..."}`."""
    return status, {"message": sentence(problem)}


@dataclass(slots=True)
class Remembered:
    """State of an image id: the key of the encoded image, and the last logits."""

    key: str
    logits: list[Floats] | None = None


class RoboflowRoutes:
    """The routes, and the images that clients gave an id."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self._known: OrderedDict[str, Remembered] = OrderedDict()

    async def embed_image(self, request: Request) -> Response:
        """Encode an image, so that its first click is fast."""
        began = time.monotonic()
        body = await self.backend.body(request, EmbedBody)
        key, _ = await self._image(request, body)
        return json_reply({"image_id": body.image_id or key, "time": time.monotonic() - began})

    async def segment_image(self, request: Request) -> Response:
        """The mask of each prompt."""
        began = time.monotonic()
        body = await self.backend.body(request, SegmentBody)
        clicks = read_clicks(body)
        key, image = await self._image(request, body)
        known = self._known.get(body.image_id or key)
        logits = known.logits if known is not None and body.load_logits_from_cache else None

        def work() -> bytes | list[dict[str, Any]]:
            results = predict(image, clicks, body.multimask_output, logits)
            if known is not None and body.save_logits_to_cache:
                known.logits = [result.logits[0] for result in results]
            if body.format == "binary":
                return archive(results)
            return predictions(results, body.format or "json")

        found = await self.backend.work(request, work)
        if isinstance(found, bytes):
            return Response(found, media_type="application/octet-stream")
        return json_reply({"predictions": found, "time": time.monotonic() - began})

    async def _image(self, request: Request, body: EmbedBody) -> tuple[str, EncodedImage]:
        """The image of a request, or the image sent under its id before."""
        if body.image is None:
            known = self._known.get(body.image_id or "")
            found = None if known is None else self.backend.images.get(known.key)
            if known is None or found is None:
                raise RequestError(400, "there is no image", hint="send it as base64 in `image`")
            return known.key, found
        if body.image.type != "base64":
            raise RequestError(
                400,
                "only images of type `base64` are taken",
                hint="addresses are not followed, and arrays are not unpickled",
            )
        data = decode_base64(body.image.value)
        image, key = await self.backend.image(request, data), digest(data)
        name = body.image_id or key
        if name not in self._known or self._known[name].key != key:
            self._known[name] = Remembered(key)
        self._known.move_to_end(name)
        while len(self._known) > MOST_IMAGES:
            self._known.popitem(last=False)
        return key, image


def routes(backend: Backend) -> list[Route]:
    """The SAM 2 routes of Roboflow inference."""
    ours = RoboflowRoutes(backend)
    return [
        route("/sam2/embed_image", ours.embed_image, error_form),
        route("/sam2/segment_image", ours.segment_image, error_form),
    ]


def _clicks(prompt: PromptField) -> Clicks:
    points = prompt.points or []
    box = None
    if (found := prompt.box) is not None:
        across, down = found.width / 2, found.height / 2
        box = (found.x - across, found.y - down, found.x + across, found.y + down)
    return Clicks(
        tuple((point.x, point.y) for point in points),
        tuple(int(point.positive) for point in points),
        box,
    )

"""Label Studio's ML backend: `/health`, `/setup`, `/predict`, `/webhook`.

A click is a keypoint region in percent of the image, a box a rectangle region. The mask goes to
the control tag of the labelling configuration: brush (its own run lengths), bitmask, polygon or
rectangle. Requests whose context has an `event` are those of the interactive editor; there, masks
are bitmasks, and videos can be tracked: see `label_studio_video.py`.
"""

from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from samgraph.predict.image.result import Result
from samgraph.serve.protocols.backend import Backend, route
from samgraph.serve.protocols.clicks import segment
from samgraph.serve.protocols.label_config import Control, read_control
from samgraph.serve.protocols.label_studio_body import (
    WHOLE,
    Context,
    PredictBody,
    SetupBody,
    answer,
    bitmask_value,
    chosen_label,
    read_clicks,
    region,
    source_of,
)
from samgraph.serve.protocols.label_studio_video import VideoEvents
from samgraph.serve.protocols.task_files import TaskFiles
from samgraph.serve.replies import ErrorReply, Problem, json_reply

CAPABILITIES = (
    {"tag": "BitmaskLabels", "output": "mask"},
    {"tag": "RectangleLabels", "output": "bbox"},
    {"tag": "PolygonLabels", "output": "polygon"},
    {"tag": "VectorLabels", "output": "polygon"},
    {"tag": "VideoRectangle", "output": "bbox", "features": ["track"]},
    {"tag": "VideoVectorLabels", "output": "polygon", "features": ["track"]},
)


class LabelStudio:
    """The routes."""

    def __init__(self, backend: Backend) -> None:
        self.backend, self.files = backend, TaskFiles(backend)
        self.videos = VideoEvents(backend, self.files)

    async def health(self, request: Request) -> Response:
        """The server is up."""
        return json_reply({"status": "UP", "model_class": "samgraph"})

    async def setup(self, request: Request) -> Response:
        """Note the address of Label Studio, and the token for its files."""
        body = await self.backend.body(request, SetupBody)
        self.files.set_up(body.hostname, body.access_token)
        return json_reply({"model_version": self.backend.name})

    async def webhook(self, request: Request) -> Response:
        """An annotation event; ignored, since nothing is trained here."""
        return json_reply({}, 201)

    async def predict(self, request: Request) -> Response:
        """The answer to a click, or to an event of the interactive editor."""
        body = await self.backend.body(request, PredictBody)
        context = body.context
        if context.event == "capabilities":
            return self._reply([[self._capabilities()]])
        if not body.tasks or (context.event is None and not context.result):
            return self._reply([[] for _ in body.tasks])  # nothing was clicked on
        control = read_control(body.label_config or "")
        if control.is_video:
            return self._reply([await self.videos.answer(request, body, control)])
        if context.event in ("prewarm", "release"):
            value = {"status": "ok", "cached": [0], "pending": []}
            return self._reply([[answer(control, f"{context.event}_ack", value)]])
        return await self._predict_image(request, body, control)

    async def _predict_image(
        self, request: Request, body: PredictBody, control: Control
    ) -> Response:
        clicks = read_clicks(body.context)
        if clicks.is_empty:
            return self._reply([[]])
        data = await self.files.read(request, source_of(body.tasks[0], control.key))
        image = await self.backend.image(request, data)
        pixels = clicks.scaled(image.size_hw, WHOLE)
        found, score = await self.backend.work(
            request, lambda: _regions(segment(image, pixels), body.context, control)
        )
        return self._reply([found], score)

    def _reply(self, results: list[list[dict[str, Any]]], score: float = 0.0) -> Response:
        """A prediction for each task."""
        version = self.backend.name
        found = [{"model_version": version, "score": score, "result": some} for some in results]
        return json_reply({"results": found, "model_version": version})

    def _capabilities(self) -> dict[str, Any]:
        """The capabilities of the interactive editor."""
        about = {"name": "SAM 2", "version": self.backend.name}
        value = {"prompts": ["point", "box"], "targets": CAPABILITIES, "model_info": about}
        return answer(None, "capabilities", value)


def routes(backend: Backend) -> list[Route]:
    """The routes of a Label Studio ML backend."""
    ours = LabelStudio(backend)
    return [
        route("/health", ours.health, error_form, "GET"),
        route("/setup", ours.setup, error_form),
        route("/predict", ours.predict, error_form),
        route("/webhook", ours.webhook, error_form),
    ]


def error_form(status: int, problem: Problem) -> tuple[int, object]:
    """Label Studio shows the body as it is: ours."""
    return status, ErrorReply(problem)


def _regions(
    result: Result, context: Context, control: Control
) -> tuple[list[dict[str, Any]], float]:
    """The region of a mask, and its score."""
    mask, score = result.mask, float(result.scores[0])
    if context.event is None:
        return region(control, mask, score, chosen_label(context)), score
    return [answer(control, "bitmask", bitmask_value(mask))] if mask.any() else [], score

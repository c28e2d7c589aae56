"""X-AnyLabeling's remote server, videos: a session of frames, prompts on them, and a track.

    POST /v1/video/init               {model, frames: [DATA_URI], start_frame_index}
    POST /v1/video/prompt             {session_id, model, frame_index, points (0 to 1), ...}
    POST /v1/video/propagate/stream   {session_id, model, start_frame, end_frame} -> events
    POST /v1/video/cleanup/{session_id}?model=

Events are lines `data: {...}` of type started, progress, completed and error. Clients that close
the connection end the track.
"""

import json
from collections.abc import AsyncIterator
from functools import partial
from typing import Annotated, Any

from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from samgraph.errors import PromptError, SamgraphError
from samgraph.predict.video.result import FrameResult
from samgraph.predict.video.video import Video
from samgraph.serve.protocols.backend import Backend, route
from samgraph.serve.protocols.clicks import Clicks
from samgraph.serve.protocols.pictures import decode_base64
from samgraph.serve.protocols.tracks import OpenVideo, Sessions, next_frame
from samgraph.serve.protocols.x_anylabeling import (
    VIDEO_MODEL,
    OutputMode,
    check_model,
    error_form,
    shapes,
    success,
)
from samgraph.serve.replies import RequestError, message_of
from samgraph.serve.schema import Name, Points, Whole

MOST_FRAMES = 20_000
HEADERS = {"cache-control": "no-cache", "x-accel-buffering": "no"}


class InitBody(Struct):
    """The frames of a video, each an image file."""

    model: Name
    frames: Annotated[list[str], Meta(min_length=1, max_length=MOST_FRAMES)]
    start_frame_index: Whole = 0


class PromptParams(Struct, frozen=True):
    """What the client's widgets are set to."""

    epsilon_factor: Annotated[float, Meta(ge=0, le=1)] | None = None
    output_mode: OutputMode | None = None
    reset_tracker: bool = False


class PromptBody(Struct):
    """Clicks on an object, as fractions of the frame's width and height."""

    session_id: Name
    model: Name
    frame_index: Whole
    points: Points | None = None
    point_labels: Annotated[list[int], Meta(max_length=1000)] | None = None
    obj_id: Whole = 1
    text_prompt: str | None = None
    params: PromptParams = PromptParams()


class PropagateBody(Struct):
    """Which frames to track; from the first prompted frame to the end, if omitted."""

    session_id: Name
    model: Name
    start_frame: Whole | None = None
    end_frame: Whole | None = None


def read_clicks(body: PromptBody) -> Clicks:
    """The prompt as clicks, in fractions of the frame.

    Raises:
        PromptError: It is a text, or points and labels do not fit.
    """
    if not body.points:
        got = "a text" if body.text_prompt else None
        raise PromptError("SAM 2 tracks objects that are clicked on", got=got, expected="points")
    labels = [1] * len(body.points) if body.point_labels is None else body.point_labels
    if len(labels) != len(body.points) or not set(labels) <= {0, 1}:
        raise PromptError("every point needs a label", expected="1 inside, 0 outside")
    return Clicks(tuple(body.points), tuple(labels))


def frame_shapes(result: FrameResult, params: PromptParams) -> list[dict[str, Any]]:
    """The shapes of all objects that are visible on a frame."""
    found = []
    visible = zip(result.objects, result.masks, result.scores, result.present, strict=True)
    for name, mask, score, is_present in visible:
        if is_present:
            found += shapes(
                mask,
                float(score),
                epsilon=params.epsilon_factor,
                mode=params.output_mode,
                group=int(name),
            )
    return found


class VideoSession(OpenVideo):
    """A video, and the options of its shapes."""

    params: PromptParams = PromptParams()


class VideoRoutes:
    """The routes, and the sessions that are open."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.sessions: Sessions[VideoSession] = Sessions(backend.options.max_loaded)
        backend.closing.append(self.sessions.close_all)

    async def init(self, request: Request) -> Response:
        """Open a session with all frames, which stay compressed in memory."""
        body = await self.backend.body(request, InitBody)
        check_model(body.model, VIDEO_MODEL)
        count = len(body.frames)
        if body.start_frame_index >= count:
            raise RequestError(400, f"there is no frame {body.start_frame_index}")
        video = await self.backend.work(request, lambda: self._open(body.frames))
        name = self.sessions.add(VideoSession(video))
        return success({"session_id": name, "total_frames": count})

    async def prompt(self, request: Request) -> Response:
        """Clicks on a frame; the reply shows every object that was clicked on there."""
        body = await self.backend.body(request, PromptBody)
        check_model(body.model, VIDEO_MODEL)
        session = self.sessions.get(body.session_id)
        clicks = read_clicks(body).scaled(session.video.size_hw, 1)
        async with session.lock:
            session.params = body.params
            found = await self.backend.work(request, lambda: _add(session, body, clicks))
        return success({"masks": found, "frame_index": body.frame_index})

    async def propagate(self, request: Request) -> Response:
        """Track, and tell about every frame as it is done."""
        body = await self.backend.body(request, PropagateBody)
        check_model(body.model, VIDEO_MODEL)
        session = self.sessions.get(body.session_id)
        if not session.video.objects:
            raise PromptError("there is nothing to track", hint="click on an object first")
        events = self._events(session, body)
        return StreamingResponse(events, headers=HEADERS, media_type="text/event-stream")

    async def cleanup(self, request: Request) -> Response:
        """Close a session."""
        name = request.path_params["session"]
        self.sessions.get(name)
        self.sessions.close(name)
        return success({"message": f"session {name} is closed"})

    async def cleanup_model(self, request: Request) -> Response:
        """Close all sessions."""
        return success({"sessions_cleared": self.sessions.close_all(), "tasks_cancelled": 0})

    def _open(self, texts: list[str]) -> Video:
        files = [decode_base64(text, f"frame {i}") for i, text in enumerate(texts)]
        return self.backend.model.video(files, max_pixels=self.backend.options.max_pixels)

    async def _events(self, session: VideoSession, body: PropagateBody) -> AsyncIterator[bytes]:
        """The events of one track."""
        video = session.video
        start = video.first_frame() if body.start_frame is None else body.start_frame
        total = video.length or 0
        yield _event("started", total_frames=total, start_frame_index=start)
        results: dict[str, Any] = {}
        async with session.lock:
            try:
                frames = video.track(start=start, end=body.end_frame)
                show = partial(_numbered, params=session.params)
                while (found := await next_frame(self.backend, frames, show)) is not None:
                    if session.is_closed:
                        raise RequestError(404, "the session was closed")
                    index, masks = found
                    results[str(index)] = {"masks": masks}
                    yield _event("progress", current_frame=index, total_frames=total)
            except SamgraphError as error:
                yield _event("error", message=message_of(error))
                return
        yield _event("completed", results=results)


def routes(backend: Backend) -> list[Route]:
    """The routes for videos."""
    ours = VideoRoutes(backend)
    return [
        route("/v1/video/init", ours.init, error_form),
        route("/v1/video/prompt", ours.prompt, error_form),
        route("/v1/video/propagate/stream", ours.propagate, error_form),
        route("/v1/video/cleanup/{session}", ours.cleanup, error_form),
        route("/v1/models/{model}/cleanup", ours.cleanup_model, error_form),
    ]


def _add(session: VideoSession, body: PromptBody, clicks: Clicks) -> list[dict[str, Any]]:
    """Replace what the object had on this frame; with `reset_tracker`, all objects go first.

    Returns the shapes of the objects that were prompted on this frame.
    """
    video = session.video
    if body.params.reset_tracker:
        video.reset()
    given: dict[str, Any] = clicks.prompts(video.size_hw)
    found = video.add(frame=body.frame_index, object=body.obj_id, replace=True, **given)
    return frame_shapes(found, body.params)


def _numbered(result: FrameResult, params: PromptParams) -> tuple[int, list[dict[str, Any]]]:
    return result.index, frame_shapes(result, params)


def _event(kind: str, **fields: Any) -> bytes:
    return b"data: " + json.dumps({"type": kind, **fields}).encode() + b"\n\n"

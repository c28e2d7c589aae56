"""The endpoints of videos: upload, prompts, track, events, masks, timeline, export, session."""

import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePath
from typing import Any

import numpy as np
from anyio import to_thread
from PIL import Image
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import FileResponse, Response, StreamingResponse

from samgraph.media.image.reading import encode_image
from samgraph.predict.video.export import frame_rate
from samgraph.serve.exports import MEDIA
from samgraph.serve.image_routes import attachment
from samgraph.serve.replies import RequestError, json_reply
from samgraph.serve.schema import (
    FramesReply,
    JobReply,
    ObjectBody,
    PredictBody,
    PredictReply,
    TrackBody,
    TrackReply,
    VideoExportBody,
    VideoPromptBody,
    VideoReply,
)
from samgraph.serve.service import Service
from samgraph.serve.session_file import unpack_session, write_session
from samgraph.serve.store import UPLOAD, Entry, Record
from samgraph.serve.tracking import Track, begin_track
from samgraph.serve.uploads import Body, read_json, receive
from samgraph.serve.video_sessions import VideoSession, checked_index, open_upload

MOST_FRAMES_AT_ONCE = 64
WIDTHS = (16, 4096)
LONG_CACHE = {"cache-control": "private, max-age=86400"}


async def post_video(service: Service, request: Request) -> Response:
    """Upload a video; with `session`, continue a session of it."""
    service.media_gate.check()
    sample = request.query_params.get("sample")
    with service.store.incoming() as folder:
        session: Path | None = None
        if sample is not None:
            found = service.samples.find(sample, "video")
            path = await to_thread.run_sync(service.samples.path, found)
            await to_thread.run_sync(shutil.copyfile, path, folder / UPLOAD)
            name = found.file
        else:
            limit, seconds = service.options.max_upload_bytes, service.options.body_seconds
            files = await receive(request, folder, limit, seconds, "video")
            name, session = files["file"].name, None
            files["file"].path.rename(folder / UPLOAD)
            service.metrics.uploaded.inc(files["file"].size)
            if "session" in files:
                session = files["session"].path
        reply = await service.work(
            request, _open, service, folder, name, session, gate=service.media_gate
        )
    return json_reply(reply, 201)


def _open(service: Service, folder: Path, name: str, session: Path | None) -> VideoReply:
    """Create a session of an uploaded video."""
    video = open_upload(
        service.core, folder / UPLOAD, service.options.max_pixels, service.options.policy
    )
    try:
        height, width = video.size_hw
        length, rate = video.source.length, frame_rate(video.source)
        record = Record(
            kind="video",
            name=name,
            width=width,
            height=height,
            frames=length,
            fps=round(rate, 3),
            duration=None if length is None else round(length / rate, 3),
        )
        if session is not None:
            limit, most = service.options.max_upload_bytes, service.options.max_objects
            unpack_session(session, folder, limit, video.source, most)
            session.unlink()
            VideoSession(video, folder, service.turns, max_objects=most).close()
    finally:
        video.close()
    entry = service.store.add(folder, record)
    return _reply(service, entry)


def _reply(service: Service, entry: Entry) -> VideoReply:
    """A video with what is known of it."""
    with service.video(entry.id) as session:
        track = session.track
        tracking = track.state if isinstance(track, Track) and track.is_running else None
        record = entry.record
        return VideoReply(
            entry.id,
            record.name,
            record.width,
            record.height,
            record.frames,
            record.fps,
            record.duration,
            session.objects(),
            tracking,
            [] if tracking else session.document.running,
        )


async def get_video(service: Service, request: Request) -> Response:
    """A video, its objects, and its track."""
    entry = service.store.find(request.path_params["id"], "video")
    reply = await service.work(request, _reply, service, entry, gate=service.media_gate)
    return json_reply(reply)


async def delete_video(service: Service, request: Request) -> Response:
    """Delete a video; a track of it ends."""
    entry = service.store.find(request.path_params["id"], "video")
    await to_thread.run_sync(service.delete, entry)
    return Response(status_code=204)


async def get_frame(service: Service, request: Request) -> Response:
    """A frame as JPEG."""
    entry, index = _frame(service, request)
    width = _number(request, "width", entry.record.width)
    if not WIDTHS[0] <= width <= WIDTHS[1] and "width" in request.query_params:
        raise RequestError(422, f"`width` is from {WIDTHS[0]} to {WIDTHS[1]}", code="bad_input")
    gate = service.media_gate
    data = await service.work(request, _jpeg, service, entry.id, index, width, gate=gate)
    return Response(data, media_type="image/jpeg", headers=LONG_CACHE)


def _jpeg(service: Service, name: str, index: int, width: int) -> bytes:
    with service.video(name) as session:
        pixels = session.pixels(index)
    height, full = pixels.shape[:2]
    if width < full:
        size = (width, max(1, round(height * width / full)))
        image = Image.fromarray(pixels).resize(size, Image.Resampling.BILINEAR, reducing_gap=2.0)
        return encode_image(np.asarray(image), "JPEG", quality=82)
    return encode_image(pixels, "JPEG", quality=90)


async def hover_frame(service: Service, request: Request) -> Response:
    """The masks of a prompt on a frame, as on an image."""
    entry, index = _frame(service, request)
    body = await _body(service, request, PredictBody)
    return json_reply(await service.work(request, _hover, service, entry.id, index, body))


def _hover(service: Service, name: str, index: int, body: PredictBody) -> PredictReply:
    with service.video(name) as session:
        return session.hover(index, body)


async def post_object(service: Service, request: Request) -> Response:
    """A new object."""
    entry = service.store.find(request.path_params["id"], "video")
    body = await _body(service, request, ObjectBody)
    with_session = _calling(service, entry, "add_object", body.name, body.color)
    return json_reply(await to_thread.run_sync(with_session), 201)


async def patch_object(service: Service, request: Request) -> Response:
    """Another name or colour."""
    entry = service.store.find(request.path_params["id"], "video")
    body = await _body(service, request, ObjectBody)
    number = request.path_params["obj"]
    with_session = _calling(service, entry, "rename", number, body.name, body.color)
    return json_reply(await to_thread.run_sync(with_session))


async def delete_object(service: Service, request: Request) -> Response:
    """Remove an object."""
    entry = service.store.find(request.path_params["id"], "video")
    await service.work(request, _calling(service, entry, "remove", request.path_params["obj"]))
    return Response(status_code=204)


async def post_prompt(service: Service, request: Request) -> Response:
    """Prompt an object on a frame."""
    entry = service.store.find(request.path_params["id"], "video")
    body = await _body(service, request, VideoPromptBody)
    checked_index(body.frame, entry.record.frames)
    return json_reply(await service.work(request, _calling(service, entry, "prompt", body)))


async def delete_prompt(service: Service, request: Request) -> Response:
    """Remove the prompts of an object on a frame."""
    entry = service.store.find(request.path_params["id"], "video")
    number, frame = request.path_params["obj"], request.path_params["frame"]
    await service.work(request, _calling(service, entry, "clear", number, frame))
    return Response(status_code=204)


async def post_track(service: Service, request: Request) -> Response:
    """Begin to track."""
    entry = service.store.find(request.path_params["id"], "video")
    body = await _body(service, request, TrackBody)

    def begin() -> int:
        with service.video(entry.id) as session:
            return begin_track(session, body, service.metrics.frames.inc).total

    return json_reply(TrackReply(await service.work(request, begin)), 202)


async def delete_track(service: Service, request: Request) -> Response:
    """Cancel a track."""
    entry = service.store.find(request.path_params["id"], "video")

    def cancel() -> None:
        with service.video(entry.id) as session:
            if isinstance(session.track, Track):
                session.track.cancel()

    await to_thread.run_sync(cancel)
    return Response(status_code=204)


async def get_events(service: Service, request: Request) -> Response:
    """The progress of the track, as server-sent events."""
    entry = service.store.find(request.path_params["id"], "video")
    last = request.headers.get("last-event-id", "")
    seen = int(last) if last.isascii() and last.isdigit() and len(last) < 16 else None
    stream = service.channel(entry).follow(seen, lambda: service.is_stopping)
    return StreamingResponse(stream, media_type="text/event-stream")


async def get_masks(service: Service, request: Request) -> Response:
    """The masks of a range of frames."""
    entry = service.store.find(request.path_params["id"], "video")
    first = _number(request, "from", 0)
    last = _number(request, "to", first)
    if last < first or last - first >= MOST_FRAMES_AT_ONCE:
        raise RequestError(
            422, f"`to` is from `from` to {MOST_FRAMES_AT_ONCE - 1} frames later", code="bad_input"
        )
    call = _calling(service, entry, "frames", first, last)
    found = await service.work(request, call, gate=service.media_gate)
    return json_reply(FramesReply(found))


async def get_timeline(service: Service, request: Request) -> Response:
    """The timeline."""
    entry = service.store.find(request.path_params["id"], "video")
    call = _calling(service, entry, "timeline")
    return json_reply(await service.work(request, call, gate=service.media_gate))


async def post_export(service: Service, request: Request) -> Response:
    """Begin an export."""
    entry = service.store.find(request.path_params["id"], "video")
    body = await _body(service, request, VideoExportBody)
    service.refuse_when_stopping()
    job = service.jobs.begin(entry.record.name, body, lambda: service.video(entry.id))
    return json_reply(JobReply(job.id), 202)


async def get_job(service: Service, request: Request) -> Response:
    """How far an export is."""
    return json_reply(service.jobs.find(request.path_params["job"]).reply)


async def delete_job(service: Service, request: Request) -> Response:
    """Cancel an export."""
    service.jobs.find(request.path_params["job"]).cancel()
    return Response(status_code=204)


async def get_job_file(service: Service, request: Request) -> Response:
    """What an export wrote."""
    job = service.jobs.find(request.path_params["job"])
    if job.state != "done":
        raise RequestError(409, f"the export is {job.state}", hint="ask for its state")
    media = MEDIA.get(PurePath(job.file_name).suffix, "application/octet-stream")
    return FileResponse(job.path, media_type=media, headers=attachment(job.file_name))


async def get_session(service: Service, request: Request) -> Response:
    """The session as a file."""
    entry = service.store.find(request.path_params["id"], "video")
    with _temporary(service.options.folder / ".exports") as path:
        await service.work(request, _write, service, entry.id, path, gate=service.long_gate)
        name = f"{PurePath(entry.record.name).stem or 'video'}.samgraph.zip"
        clean = BackgroundTask(path.unlink, missing_ok=True)
        media = "application/zip"
        return FileResponse(path, media_type=media, headers=attachment(name), background=clean)


def _write(service: Service, name: str, path: Path) -> None:
    with service.video(name) as session, session.turns.click():
        write_session(session, path)


@contextmanager
def _temporary(folder: Path) -> Iterator[Path]:
    """The path of a file that is deleted if the block fails."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{secrets.token_hex(8)}.zip"
    try:
        yield path
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def _frame(service: Service, request: Request) -> tuple[Entry, int]:
    """The video and the frame in the address."""
    entry = service.store.find(request.path_params["id"], "video")
    return entry, checked_index(request.path_params["n"], entry.record.frames)


async def _body(service: Service, request: Request, kind: type[Body]) -> Body:
    options = service.options
    return await read_json(request, kind, options.max_body_bytes, options.body_seconds)


def _number(request: Request, name: str, default: int) -> int:
    """A whole number in the address."""
    text = request.query_params.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise RequestError(422, f"`{name}` is not a whole number", code="bad_input")
    return int(text)


def _calling(service: Service, entry: Entry, method: str, *args: object) -> Any:
    """A function that calls a method of the session."""

    def call() -> Any:
        with service.video(entry.id) as session:
            return getattr(session, method)(*args)

    return call

"""Label Studio's interactive video editor: events that come as requests for predictions.

    predict          the mask of clicks on one frame
    prewarm          encode the frames around one, so that clicks there are fast
    track            start a track from clicks; `track_progress` fetches its frames, a long poll
    track_cancel     stop it
    release          forget the video

Without an event, rectangles that were drawn on a video are tracked at once, until a request times
out.
"""

import logging
import time
from collections.abc import Iterator
from functools import partial
from itertools import chain
from typing import Any

from starlette.requests import Request

from samgraph.errors import PromptError, SamgraphError
from samgraph.predict.image.encoded import EncodedImage
from samgraph.predict.video.result import FrameResult
from samgraph.predict.video.video import Video
from samgraph.serve.protocols.backend import Backend
from samgraph.serve.protocols.clicks import Clicks, bounding_box, segment
from samgraph.serve.protocols.label_config import Control
from samgraph.serve.protocols.label_studio_body import (
    WHOLE,
    Context,
    PredictBody,
    answer,
    bitmask_value,
    chosen_label,
    percent_box,
    read_clicks,
    source_of,
)
from samgraph.serve.protocols.pictures import digest
from samgraph.serve.protocols.task_files import TaskFiles
from samgraph.serve.protocols.task_video import TaskVideo, TrackJob
from samgraph.serve.protocols.tracks import Sessions, next_frame
from samgraph.serve.replies import RequestError
from samgraph.untrusted.text import shown

LOG = logging.getLogger("samgraph.serve")

MOST_VIDEOS = 8
MOST_TRACKS = 16
MOST_WINDOW = 64
DEFAULT_WINDOW = 20
DEFAULT_FRAMES = 300
# How long a request may track before it answers with what it has.
PATIENCE_SECONDS = 60.0
PixelBox = tuple[int, int, int, int]
DIRECTIONS = ("forward", "backward", "both")


class VideoEvents:
    """The events, the videos that are open, and the tracks that are running."""

    def __init__(self, backend: Backend, files: TaskFiles) -> None:
        self.backend, self.files = backend, files
        self.videos: Sessions[TaskVideo] = Sessions(MOST_VIDEOS)
        self.tracks: Sessions[TrackJob] = Sessions(MOST_TRACKS)
        backend.closing += [self.tracks.close_all, self.videos.close_all]

    async def answer(
        self, request: Request, body: PredictBody, control: Control
    ) -> list[dict[str, Any]]:
        """The `result` of a prediction.

        Raises:
            RequestError: There is no such event, or the video cannot be had.
        """
        context, task = body.context, body.tasks[0]
        event = context.event or "rectangles"
        if event == "track_progress":
            return [answer(control, event, await self._progress(context))]
        if event == "track_cancel":
            self.tracks.close(context.session_id or "")
            return [answer(control, "track_cancel_ack", {"status": "cancelled"})]
        source = source_of(task, control.key)
        key = digest(f"{task.id}\n{source}".encode())
        if event == "release":
            self._release(key)
            return [answer(control, "release_ack", {"status": "released"})]
        if event not in ("predict", "prewarm", "track", "rectangles"):
            raise RequestError(400, f"there is no event `{shown(event, 40)}`")
        video = await self._video(request, key, source)
        if event == "prewarm":
            return [answer(control, "prewarm_ack", self._prewarm(video, context))]
        if event == "track":
            return [answer(control, "track_started", await self._track(request, video, context))]
        if event == "rectangles":
            return await self._rectangles(request, video, context, control)
        return await self._predict(request, video, context, control)

    async def _video(self, request: Request, key: str, source: str) -> TaskVideo:
        """The video of a task, fetched unless it is open already."""
        found = self.videos.find(key)
        if found is None:
            folder, path = await self.files.download(request, source)
            try:
                most = self.backend.options.max_pixels
                video = await self.backend.work(
                    request, lambda: self.backend.model.video(path, max_pixels=most)
                )
            except BaseException:
                folder.cleanup()
                raise
            found = TaskVideo(key, folder, path, video)
            self.videos.add(found, key)
        return found

    async def _predict(
        self, request: Request, video: TaskVideo, context: Context, control: Control
    ) -> list[dict[str, Any]]:
        """The mask of clicks on one frame."""
        clicks = read_clicks(context).scaled(video.size_hw, WHOLE)
        if clicks.is_empty:
            return []
        frame = video.frame_index(context.time_ms, context.frame)
        image = self.backend.images.get(video.image_key(frame))
        if image is None:
            image = await self.backend.work(request, lambda: self._encode(video, frame))
            self.backend.images.put(video.image_key(frame), image)
        found = image
        value = await self.backend.work(request, lambda: bitmask_value(segment(found, clicks).mask))
        return [answer(control, "bitmask", value)]

    def _prewarm(self, video: TaskVideo, context: Context) -> dict[str, Any]:
        """Begin to encode the frames of a window; says which are encoded and which are not yet."""
        frame = video.frame_index(context.time_ms, context.frame)
        window = DEFAULT_WINDOW if context.window is None else int(context.window)
        window = max(1, min(window, MOST_WINDOW))
        backward = context.direction == "backward"
        ahead = range(frame, frame - window, -1) if backward else range(frame, frame + window)
        wanted = [index for index in ahead if 0 <= index < video.length]
        cached = [n for n in wanted if video.image_key(n) in self.backend.images]
        pending = [index for index in wanted if index not in cached]
        video.ahead = pending.copy()
        if not video.is_warming:
            video.is_warming = True
            self.backend.start(self._encode_ahead(video))
        state = {"cached": cached, "pending": pending, "frame_count": video.length}
        return {"status": "ok", **state}

    async def _track(self, request: Request, video: TaskVideo, context: Context) -> dict[str, Any]:
        """Start a track from the clicks of a context."""
        clicks = read_clicks(context).scaled(video.size_hw, WHOLE)
        frame = video.frame_index(context.time_ms, context.frame)
        count = DEFAULT_FRAMES if context.max_frames is None else int(context.max_frames)
        if context.max_duration_ms is not None:
            count = round(context.max_duration_ms / 1000 * video.fps)
        direction = context.direction or "forward"
        if direction not in DIRECTIONS:
            raise RequestError(400, f"there is no direction `{shown(direction, 40)}`")
        last = min(video.length - 1, frame + max(count, 0)) if direction != "backward" else frame
        first = max(0, frame - max(count, 0)) if direction != "forward" else frame

        def prepare() -> Video:
            own = self.backend.model.video(video.path, max_pixels=self.backend.options.max_pixels)
            try:
                own.add(frame=frame, object=1, **_given(clicks, video))
            except BaseException:
                own.close()
                raise
            return own

        own = await self.backend.work(request, prepare)
        job = TrackJob(video, own, last - first + 1)
        name = self.tracks.add(job)
        video.jobs = [running for running in video.jobs if not running.is_done] + [job]
        self.backend.start(self._run(job, frame, first, last))
        duration = video.length * 1000 / video.fps
        about = {"fps": video.fps, "duration_ms": duration}
        return {"session_id": name, "total_frames": job.total, **about}

    async def _progress(self, context: Context) -> dict[str, Any]:
        """The next frames of a track."""
        job = self.tracks.find(context.session_id or "")
        if job is None:
            return {"frames": [], "error": "session not found", "done": True}
        frames = await job.take()
        if job.is_done:
            self.tracks.close(context.session_id or "")
        state = {"produced": job.produced, "total": job.total, "done": job.is_done}
        return {"frames": frames, **state, "error": job.error}

    async def _run(self, job: TrackJob, frame: int, first: int, last: int) -> None:
        """Track a job's frames: forward to `last`, then back to `first`."""
        error = None
        frames = chain(job.own.track(start=frame, end=last), _back(job.own, frame, first))
        try:
            while (found := await next_frame(self.backend, frames, job.show)) is not None:
                if job.is_cancelled:
                    break
                await job.put(found)
        except SamgraphError as failure:
            error = failure.what
        except Exception:
            LOG.exception("a track failed")
            error = "the server failed to track; its log says where"
        finally:
            job.finish(error)

    async def _rectangles(
        self, request: Request, video: TaskVideo, context: Context, control: Control
    ) -> list[dict[str, Any]]:
        """Rectangles drawn on frames, followed until the end or until a request takes too long."""
        drawn = [region for region in context.result or [] if region.value.sequence]
        if not drawn:
            raise PromptError("there is nothing to track", expected="a rectangle on a frame")

        def prepare() -> Video:
            own = self.backend.model.video(video.path, max_pixels=self.backend.options.max_pixels)
            for number, region in enumerate(drawn, start=1):
                for key in region.value.sequence or []:
                    box = (key.x, key.y, key.x + key.width, key.y + key.height)
                    clicks = Clicks(box=box).scaled(video.size_hw, WHOLE)
                    index = max(0, min(key.frame - 1, video.length - 1))
                    own.add(frame=index, object=number, replace=True, **_given(clicks, video))
            return own

        own = await self.backend.work(request, prepare)
        sequences: list[list[dict[str, Any]]] = [[] for _ in drawn]
        began, frames = time.monotonic(), own.track()
        try:
            while (found := await next_frame(self.backend, frames, _boxes)) is not None:
                for sequence, box in zip(sequences, found[1], strict=True):
                    sequence.append(_key_frame(video, found[0], box, sequence))
                if time.monotonic() - began > PATIENCE_SECONDS:
                    break
        finally:
            own.close()
        label = chosen_label(context)
        names = {} if label is None else {"labels": [label]}
        return [
            answer(
                control,
                "videorectangle",
                {"framesCount": video.length, "sequence": list(filter(None, sequence)), **names},
            )
            for sequence in sequences
        ]

    async def _encode_ahead(self, video: TaskVideo) -> None:
        """Encode the frames that are wanted, one by one, while no click waits."""
        try:
            while video.ahead and not video.is_closed:
                frame = video.ahead.pop(0)
                key = video.image_key(frame)
                if key in self.backend.images:
                    continue
                try:
                    image = await self.backend.frame(partial(self._encode, video, frame))
                except SamgraphError:
                    continue  # a click there reports the error
                if not video.is_closed:
                    self.backend.images.put(key, image)
        finally:
            video.is_warming = False

    def _encode(self, video: TaskVideo, frame: int) -> EncodedImage:
        return self.backend.model.image(video.video.source.frame(frame))

    def _release(self, key: str) -> None:
        self.videos.close(key)
        self.backend.images.drop_all(key)


def _given(clicks: Clicks, video: TaskVideo) -> dict[str, Any]:
    return clicks.prompts(video.size_hw)


def _back(video: Video, frame: int, first: int) -> Iterator[FrameResult]:
    """The frames before the prompted frame, the nearest first."""
    if first >= frame:
        return iter(())
    return video.track(start=frame - 1, end=first, reverse=True)


def _boxes(result: FrameResult) -> tuple[int, list[PixelBox | None]]:
    return result.index, [bounding_box(mask) for mask in result.masks]


def _key_frame(
    video: TaskVideo, index: int, box: PixelBox | None, sequence: list[dict[str, Any]]
) -> dict[str, Any]:
    """The rectangle of an object; where it disappears, the last rectangle is disabled."""
    if box is None:
        if not sequence or not sequence[-1] or not sequence[-1]["enabled"]:
            return {}
        where = {key: sequence[-1][key] for key in ("x", "y", "width", "height")}
    else:
        where = percent_box(box, video.size_hw)
    time_s = video.seconds(index)
    return {"frame": index + 1, **where, "enabled": box is not None, "rotation": 0, "time": time_s}

"""State shared by the endpoints: the model and its gates, sessions, metrics."""

import functools
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import numpy as np
from anyio import to_thread
from starlette.requests import Request

from samgraph.predict.image.encoded import encode_image
from samgraph.predict.model import Model
from samgraph.predict.video.video import open_video
from samgraph.serve.events import Channel
from samgraph.serve.export_jobs import ExportJobs
from samgraph.serve.gate import Gate, Turns
from samgraph.serve.image_sessions import ImageSession
from samgraph.serve.metrics import Metrics
from samgraph.serve.options import ServeOptions
from samgraph.serve.replies import RequestError
from samgraph.serve.samples import Samples
from samgraph.serve.store import UPLOAD, Entry, Loaded, SessionStore
from samgraph.serve.video_sessions import VideoSession, open_upload

LOG = logging.getLogger("samgraph.serve")

Answer = TypeVar("Answer")
# Long work, such as automatic masks, has its own gate: clicks do not wait for it.
LONG_WORKING, LONG_WAITING = 1, 4
# So have images and frames, which a page requests in numbers.
MEDIA_WORKING, MEDIA_WAITING = 2, 128


class Service:
    """One server's state. `close` saves all of it."""

    def __init__(self, model: Model, options: ServeOptions) -> None:
        self.model, self.core, self.options = model, model.core, options
        self.metrics, self.turns = Metrics(), Turns()
        patience = options.queue_seconds
        self.gate = Gate(options.working, options.waiting, patience)
        self.long_gate = Gate(LONG_WORKING, LONG_WAITING, patience)
        self.media_gate = Gate(MEDIA_WORKING, MEDIA_WAITING, patience)
        self.gate.on_wait = self.metrics.queue_seconds.observe
        self.samples = Samples(options.folder / ".samples")
        self._channels: dict[str, Channel] = {}
        self.store = SessionStore(options, self._load)
        self.jobs = ExportJobs(options.folder / ".exports", options.max_jobs)
        self.is_ready = self.is_stopping = False

    async def work(
        self,
        request: Request,
        function: Callable[..., Answer],
        *args: object,
        gate: Gate | None = None,
    ) -> Answer:
        """Run a function in a thread, once the gate admits it.

        Raises:
            RequestError: The server is busy, or stops.
        """
        self.refuse_when_stopping()
        gate = gate or self.gate
        try:
            async with gate.admitted(request.is_disconnected):
                start = time.monotonic()
                try:
                    return await to_thread.run_sync(functools.partial(function, *args))
                finally:
                    if gate is not self.media_gate:
                        self.metrics.compute_seconds.observe(time.monotonic() - start)
        except RequestError as error:
            if error.status in (503, 504):
                self.metrics.shed.labels(error.code).inc()
            raise

    def refuse_when_stopping(self) -> None:
        """Refuse to start anything while stopping.

        Raises:
            RequestError: The server stops.
        """
        if self.is_stopping:
            raise RequestError(503, "the server is stopping", code="stopping", retry_after=10)

    @contextmanager
    def image(self, name: str) -> Iterator[ImageSession]:
        """An image session, in memory for the length of the block."""
        with self.store.using(name, "image") as session:
            if not isinstance(session, ImageSession):
                raise RequestError(404, "there is no such image")
            yield session

    @contextmanager
    def video(self, name: str) -> Iterator[VideoSession]:
        """A video session, in memory for the length of the block."""
        with self.store.using(name, "video") as session:
            if not isinstance(session, VideoSession):
                raise RequestError(404, "there is no such video")
            yield session

    def channel(self, entry: Entry) -> Channel:
        """The events of a video, which need not be loaded."""
        known = {name: found for name, found in self._channels.items() if name in self.store}
        self._channels = known
        return known.setdefault(entry.id, Channel())

    def delete(self, entry: Entry) -> None:
        """Delete a session; the event streams of its listeners end."""
        self.store.delete(entry)
        channel = self._channels.pop(entry.id, None)
        if channel is not None:
            channel.close()

    def warm_up(self) -> None:
        """Compile what a first click needs, so that it is as fast as the next; then, for tracks."""
        grey = np.full((64, 64, 3), 128, np.uint8)
        image = encode_image(self.core, grey)
        image.predict(points=[(32, 32)])
        image.predict(box=(8, 8, 48, 48), multimask=False)
        self.is_ready = True
        frames = open_video(self.core, np.stack([grey] * 3))
        with self.turns.frame():
            frames.add(frame=0, object=1, points=[(32, 32)])
        results = frames.track()
        while not self.is_stopping:
            with self.turns.frame():
                if next(results, None) is None:
                    return

    def measure(self) -> None:
        """Bring the gauges up to date."""
        metrics = self.metrics
        metrics.working.set(self.gate.working)
        metrics.waiting.set(self.gate.waiting)
        metrics.sessions.set(len(self.store))
        metrics.loaded.set(self.store.loaded)
        metrics.bytes.set(self.store.nbytes)

    def stop(self) -> None:
        """Refuse new work; running work may finish. Safe to call from a signal handler."""
        self.is_stopping, self.is_ready = True, False
        for channel in list(self._channels.values()):
            channel.close()

    def close(self) -> None:
        """Save and release everything."""
        self.stop()
        self.jobs.close()
        self.store.close()

    def _load(self, entry: Entry) -> Loaded:
        options = self.options
        if entry.record.kind == "video":
            video = open_upload(
                self.core, entry.folder / UPLOAD, options.max_pixels, options.policy
            )
            channel = self.channel(entry)
            return VideoSession(video, entry.folder, self.turns, channel, options.max_objects)
        return ImageSession.load(self.core, entry, self.turns)

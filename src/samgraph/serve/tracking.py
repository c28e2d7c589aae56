"""A running track: a thread that follows the objects of a video, frame by frame.

Between frames it releases the video and the model, so that clicks are answered; prompts take effect
from the next frame on. Every frame is on disk before its event is sent.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator

from samgraph.errors import OptionError, PromptError, SamgraphError
from samgraph.predict.video.result import FrameResult
from samgraph.serve.mask_file import MaskLine
from samgraph.serve.replies import RequestError
from samgraph.serve.schema import Span, TrackBody, Tracking
from samgraph.serve.video_sessions import VideoSession, checked_index, message

LOG = logging.getLogger("samgraph.serve")

# How often the tracking state is saved: frames since then are tracked again after a kill.
SAVE_SECONDS = 10.0
# Frames over which the rate is averaged.
SMOOTHING = 0.1


class Track(threading.Thread):
    """Tracks spans of frames; `cancel` ends it after the current frame."""

    def __init__(
        self, session: VideoSession, spans: list[Span], on_frame: Callable[[], object]
    ) -> None:
        super().__init__(name="track", daemon=True)
        self._session, self._spans, self._on_frame = session, spans, on_frame
        self._is_cancelled = self._is_stopped = self._is_over = False
        self._seconds: float | None = None
        self.done, self.total = 0, sum(map(len, spans))
        self.frame_index = spans[0].first

    @property
    def state(self) -> Tracking:
        """How far it is."""
        rate = 1 / self._seconds if self._seconds else 0.0
        left = (self.total - self.done) * self._seconds if self._seconds else None
        return Tracking(
            self.frame_index,
            self.done,
            self.total,
            round(rate, 2),
            None if left is None else round(left, 1),
        )

    @property
    def is_running(self) -> bool:
        """Whether it runs; not so any more when its end is told, so that another can begin."""
        return self.is_alive() and not self._is_over

    def cancel(self) -> None:
        """End after the current frame; what was tracked stays."""
        self._is_cancelled = True

    def stop(self) -> None:
        """As `cancel`, because the server stops: the track can be resumed."""
        self._is_stopped = True

    def run(self) -> None:
        """Track, and publish how it ended."""
        session = self._session
        try:
            for span in self._spans:
                if not self._track(span):
                    break
            ending = "cancelled" if self._is_cancelled or self._is_stopped else "done"
            self._finish(keep_running=self._is_stopped)
            self._is_over = True
            session.channel.publish(ending, self.state)
        except SamgraphError as error:
            self._fail(message(error))
        except Exception:
            LOG.exception("a track failed")
            self._fail({"message": "the server failed to track", "hint": "its log says where"})

    def _fail(self, what: dict[str, str | None]) -> None:
        try:
            self._finish(keep_running=False)
        except (SamgraphError, OSError):
            LOG.exception("a track could not be saved")
        self._is_over = True
        self._session.channel.publish("error", what)

    def _finish(self, *, keep_running: bool) -> None:
        """Save the state; a track that was stopped with the server is recorded."""
        session = self._session
        with session.lock:
            if not keep_running:
                session.document.running = []
            session.save()

    def _track(self, span: Span) -> bool:
        """One direction; False where it was cancelled."""
        session = self._session
        results = session.video.track(start=span.first, end=span.last, reverse=span.is_reverse)
        saved = time.monotonic()
        try:
            while not (self._is_cancelled or self._is_stopped):
                began = time.monotonic()
                with session.turns.frame(), session.lock:
                    lines = self._step(results)
                    if lines is None:
                        return True
                    if time.monotonic() - saved > SAVE_SECONDS:
                        session.save()
                        saved = time.monotonic()
                self._publish(lines, time.monotonic() - began)
        finally:
            with session.lock:
                getattr(results, "close", lambda: None)()
        return False

    def _step(self, results: Iterator[FrameResult]) -> list[MaskLine] | None:
        """The next frame, written; None at the end."""
        try:
            result = next(results)
        except StopIteration:
            return None
        lines = self._session.lines(result)
        self._session.masks.append(lines)
        self.frame_index = result.index
        return lines

    def _publish(self, lines: list[MaskLine], seconds: float) -> None:
        self.done += 1
        before = seconds if self._seconds is None else self._seconds
        self._seconds = before + SMOOTHING * (seconds - before)
        self._on_frame()
        state = self.state
        objects = [
            {
                "id": line.object,
                "score": line.score,
                "present": line.present,
                "area": line.area,
                "box": line.box,
            }
            for line in lines
        ]
        event = {
            "frame": state.frame,
            "done": state.done,
            "total": state.total,
            "fps": state.fps,
            "seconds_left": state.seconds_left,
            "objects": objects,
        }
        self._session.channel.publish("progress", event)


def begin_track(session: VideoSession, body: TrackBody, on_frame: Callable[[], object]) -> Track:
    """Start to track; what is tracked is acknowledged when it is written.

    Raises:
        RequestError: A track runs already (409), or there is no such frame (404).
        PromptError: There is nothing to track.
    """
    with session.turns.click(), session.lock:
        if session.is_busy:
            raise RequestError(409, "the video is being tracked", hint="cancel it first")
        if not session.video.objects:
            raise PromptError("there is nothing to track", hint="point at an object first")
        spans = spans_of(session, body)
        if not spans:
            raise OptionError("there is no frame to track in this direction")
        session.document.running = spans
        session.document.save(session.folder)
        track = Track(session, spans, on_frame)
        session.track = track
        track.start()
        return track


def spans_of(session: VideoSession, body: TrackBody) -> list[Span]:
    """The frames to track: forward, backward, or forward and then backward."""
    length = session.length or 2**31 - 1
    is_back = body.direction == "backward"
    start = session.video.first_frame(is_back) if body.start is None else body.start
    checked_index(start, session.length)
    many = body.frames or length
    spans = []
    if not is_back:
        first = _known_until(session, start)
        spans.append(Span(first, min(start + many, length) - 1))
    if body.direction != "forward":
        first = start if is_back else start - 1
        if first >= 0:
            spans.append(Span(first, max(first - many + 1, 0), is_reverse=True))
    return spans


def _known_until(session: VideoSession, start: int) -> int:
    """Where to start forward: earlier, if a killed server lost the memory of frames before."""
    for span in session.document.running:
        ahead = not span.is_reverse and span.first <= start <= span.last + 1
        if ahead and not session.video.is_going_back:
            return min(start, max(session.video.position, span.first))
    return start

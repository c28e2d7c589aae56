"""The frames of a tracking run: those of prompted objects, or of everything that is found.

Both can be saved while they run, and go on from what was saved with the same results.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from samgraph.errors import CheckpointError
from samgraph.jobs.prompts import Prompts
from samgraph.predict.video.discovery import (
    Discovery,
    DiscoveryOptions,
    checked_range,
    stream_for,
    video_everything,
)
from samgraph.predict.video.result import FrameResult
from samgraph.predict.video.sessions import restore_video, resume
from samgraph.predict.video.stream import Stream
from samgraph.predict.video.video import Video

if TYPE_CHECKING:
    from samgraph.jobs.track import FrameRange


class Tracking(Protocol):
    """What a run does with its video."""

    def results(self, *, images: bool) -> Iterator[FrameResult]:
        """The frames that are left, one at a time."""

    def save(self, path: Path) -> None:
        """Write the tracking state to resume from, if it can be saved."""


class PromptedTracking:
    """Objects that were prompted; `session` is what an earlier run saved, if it did."""

    def __init__(
        self, video: Video, prompts: Prompts, frame_range: "FrameRange", session: Path | None
    ) -> None:
        self._video, self._range = video, frame_range
        self._frames = frame_range.frames((frame for _, frame in prompts), video.source.length or 0)
        self._position: int | None = None  # to resume from
        if session is not None and session.exists():
            with suppress(CheckpointError):  # then tracking starts over; done frames stay
                restore_video(video, session)
                self._position = video.position
                return
        for (name, frame), prompt in prompts.items():
            video.add(frame=frame, object=name, **prompt.arguments())

    def results(self, *, images: bool) -> Iterator[FrameResult]:
        """The frames that are left, in tracking order."""
        if self._position is None:
            return self._video.track(**asdict(self._range), images=images)
        return self._left(self._position, images)

    def save(self, path: Path) -> None:
        """Write the session of the video."""
        self._video.save(path)

    def _left(self, position: int, images: bool) -> Iterator[FrameResult]:
        """The results of the frames after a saved session's position."""
        video, frames = self._video, self._frames
        first, forward = frames[0], [frame for frame in frames if frame >= frames[0]]
        if self._range.reverse:
            if position >= frames[-1]:
                yield from video.track(start=position, end=frames[-1], reverse=True, images=images)
            return
        if not video.is_going_back and position <= forward[-1]:
            yield from video.track(start=position, end=forward[-1], images=images)
        begin = position if video.is_going_back else first - 1
        if self._range.both and begin >= 0:
            yield from video.track(start=begin, end=0, reverse=True, images=images)


@dataclass(slots=True)
class EverythingTracking:
    """Everything that is found, from `start` to `end` or from where a saved stream was."""

    video: Video
    stream: Stream
    options: DiscoveryOptions
    start: int
    end: int | None
    is_between_frames: bool = True

    @classmethod
    def begin(
        cls,
        video: Video,
        options: DiscoveryOptions,
        frame_range: "FrameRange",
        session: Path | None,
    ) -> "EverythingTracking":
        """From the start, or from what an earlier run saved."""
        start, end = checked_range(video, frame_range.start or 0, frame_range.end)
        if session is not None and session.exists():
            with suppress(CheckpointError):  # then tracking starts over; done frames stay
                found = resume(video.model, session)
                if isinstance(found, Stream):
                    return cls(video, found, options, found.position, end)
        return cls(video, stream_for(video), options, start, end)

    def results(self, *, images: bool) -> Iterator[FrameResult]:
        """The frames that are left."""
        discovery = Discovery(self.stream, self.options)
        found = video_everything(
            self.video, discovery, start=self.start, end=self.end, images=images
        )
        self.is_between_frames = False
        for result in found:
            self.is_between_frames = True
            yield result
            self.is_between_frames = False
        self.is_between_frames = True

    def save(self, path: Path) -> None:
        """Write the stream; not within a frame, where an earlier file stays."""
        if self.is_between_frames:
            self.stream.save(path)

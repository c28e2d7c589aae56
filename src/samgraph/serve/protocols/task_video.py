"""A video of a Label Studio task, and the tracks that run on it."""

import asyncio
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from samgraph.predict.video.result import FrameResult
from samgraph.predict.video.video import Video
from samgraph.serve.protocols.label_studio_body import bitmask_value
from samgraph.serve.protocols.task_files import Folder

DEFAULT_FPS = 25.0
# How long a poll waits for the first frame, and then for more.
WAIT_SECONDS = 5.0
BATCH_SECONDS = 0.25
MOST_AT_ONCE = 32
# Frames after which a track waits for its client.
MOST_UNSENT = 256


class TaskVideo:
    """A video that was fetched; frames are found by their time."""

    def __init__(self, key: str, folder: Folder, path: Path, video: Video) -> None:
        self.key, self.path, self.video = key, path, video
        self.jobs: list[TrackJob] = []
        self.is_closed = False
        self.ahead: list[int] = []  # the frames to be encoded ahead of clicks, the next first
        self.is_warming = False
        self._folder = folder

    @property
    def size_hw(self) -> tuple[int, int]:
        """Height and width of the frames."""
        return self.video.size_hw

    @property
    def length(self) -> int:
        """How many frames there are."""
        return self.video.length or 1

    @property
    def fps(self) -> float:
        """Frames per second, on average."""
        seconds = self.seconds(self.length - 1)
        return (self.length - 1) / seconds if seconds > 0 else DEFAULT_FPS

    def seconds(self, frame: int) -> float:
        """The time of a frame."""
        return self.video.source.time(frame) or 0.0

    def frame_index(self, time_ms: float | None, frame: float | None) -> int:
        """The frame that is shown at a time, or a frame that was counted from 1."""
        if time_ms is None:
            return max(0, min(int(frame or 1) - 1, self.length - 1))
        first, last = 0, self.length - 1
        while first < last:  # the last frame that begins before, or at, this time
            middle = (first + last + 1) // 2
            if self.seconds(middle) * 1000 <= time_ms + 1e-3:
                first = middle
            else:
                last = middle - 1
        return first

    def image_key(self, frame: int) -> str:
        """The key of an encoded frame."""
        return f"{self.key}:{frame}"

    def close(self) -> None:
        """Stop what runs on the video, and delete it."""
        self.is_closed = True
        for job in self.jobs:
            job.close()
        self.video.close()
        self._folder.cleanup()


class TrackJob:
    """A track that runs in the background; its frames wait here to be fetched."""

    def __init__(self, video: TaskVideo, own: Video, total: int) -> None:
        self.own, self.total = own, total
        self.produced = 0
        self.error: str | None = None
        self.is_cancelled = False
        self._video, self._is_finished = video, False
        self._frames: deque[dict[str, Any]] = deque()
        self._changed = asyncio.Event()

    @property
    def is_done(self) -> bool:
        """Whether there is nothing more to fetch."""
        return self._is_finished and not self._frames

    def close(self) -> None:
        """Stop tracking after the frame that is running."""
        self.is_cancelled = True
        self._changed.set()

    def show(self, result: FrameResult) -> dict[str, Any]:
        """A frame as it is sent; empty where the object is not visible."""
        if not result.present[0] or not result.masks[0].any():
            return {}
        time_ms = self._video.seconds(result.index) * 1000
        shown = {"frame": result.index, "time_ms": time_ms}
        return {**shown, **bitmask_value(result.masks[0])}

    async def put(self, shown: dict[str, Any]) -> None:
        """A frame is done; waits while too many were not fetched."""
        await self._until(lambda: len(self._frames) < MOST_UNSENT or self.is_cancelled)
        self.produced += 1
        if shown:
            self._frames.append(shown)
        self._changed.set()

    def finish(self, error: str | None = None) -> None:
        """There will be no further frames."""
        self.own.close()
        self.error, self._is_finished = error, True
        self._changed.set()

    async def take(self) -> list[dict[str, Any]]:
        """The frames that are ready; waits a few seconds where there is none yet."""
        await self._until(lambda: self._frames or self._is_finished, WAIT_SECONDS)
        if self._frames:
            await self._until(
                lambda: len(self._frames) >= MOST_AT_ONCE or self._is_finished, BATCH_SECONDS
            )
        count = min(len(self._frames), MOST_AT_ONCE)
        taken = [self._frames.popleft() for _ in range(count)]
        self._changed.set()
        return taken

    async def _until(self, ready: Callable[[], object], seconds: float | None = None) -> None:
        """Wait for a condition, or for a time limit."""
        try:
            async with asyncio.timeout(seconds):
                while not ready():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            return

"""Admission of requests to the model.

`Gate` limits how many requests run and how many wait; others are refused at once, with the time
after which to retry. `Turns` gives clicks priority over the frames of running tracks: a click waits
for at most one frame.
"""

import asyncio
import math
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

from samgraph.serve.replies import RequestError

# How often a waiting request checks whether its client is still connected.
LOOK_SECONDS = 0.25
# Weight of one request in the moving average of compute time.
SMOOTHING = 0.2
LONGEST_RETRY = 60

IsGone = Callable[[], Awaitable[bool]]


class Gate:
    """Limits how many requests run and how many wait; for one event loop."""

    def __init__(self, working: int, waiting: int, queue_seconds: float) -> None:
        self._most, self._room, self._patience = working, waiting, queue_seconds
        self.working = 0
        self._queue: deque[asyncio.Future[None]] = deque()
        self._seconds = 0.1  # compute time of a request, on average
        self.on_wait: Callable[[float], object] = lambda _: None

    @property
    def waiting(self) -> int:
        """How many requests wait."""
        return len(self._queue)

    def check(self) -> None:
        """Refuse early what would be refused later, for instance before a long upload.

        Raises:
            RequestError: The server is full.
        """
        if self.working >= self._most and len(self._queue) >= self._room:
            raise RequestError(
                503,
                "the server is busy",
                hint="try again in a moment",
                retry_after=self.retry_after,
            )

    @property
    def retry_after(self) -> int:
        """Whole seconds until the requests that wait now are served."""
        seconds = self._seconds * (len(self._queue) + 1) / self._most
        return max(1, min(LONGEST_RETRY, math.ceil(seconds)))

    @asynccontextmanager
    async def admitted(self, is_gone: IsGone | None = None) -> AsyncIterator[None]:
        """Holds a slot while the block runs.

        Raises:
            RequestError: The server is full (503), or the wait took too long (504).
        """
        self.check()
        began = time.monotonic()
        if self.working < self._most:
            self.working += 1
        else:
            await self._wait(began, is_gone)
        self.on_wait(time.monotonic() - began)
        start = time.monotonic()
        try:
            yield
        finally:
            taken = time.monotonic() - start
            self._seconds += SMOOTHING * (taken - self._seconds)
            self._leave()

    async def _wait(self, began: float, is_gone: IsGone | None) -> None:
        """Wait for a slot, which a finished request hands over."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.append(turn)
        try:
            while not turn.done():
                await asyncio.wait([turn], timeout=LOOK_SECONDS)
                if turn.done():
                    return
                if is_gone is not None and await is_gone():
                    raise RequestError(503, "the client has left", code="left")
                if time.monotonic() - began > self._patience:
                    raise RequestError(504, "the request waited too long", retry_after=1)
        except BaseException:
            if turn.done():
                self._leave()
            else:
                self._queue.remove(turn)
            raise

    def _leave(self) -> None:
        if self._queue:
            self._queue.popleft().set_result(None)
        else:
            self.working -= 1


class Turns:
    """Frames of tracks run one at a time, and yield to clicks; for threads.

    A frame starts when no click runs or waits, or after `patience` seconds, so that a
    stream of clicks does not stop a track.
    """

    def __init__(self, patience: float = 0.5) -> None:
        self._changed = threading.Condition()
        self._clicks = 0
        self._is_frame_running = False
        self._patience = patience

    @property
    def clicks(self) -> int:
        """How many clicks run or wait."""
        return self._clicks

    @contextmanager
    def click(self) -> Iterator[None]:
        """A click: starts when the running frame is done."""
        with self._changed:
            self._clicks += 1
            self._changed.wait_for(lambda: not self._is_frame_running)
        try:
            yield
        finally:
            with self._changed:
                self._clicks -= 1
                self._changed.notify_all()

    @contextmanager
    def frame(self) -> Iterator[None]:
        """A frame of a track: one at a time, and clicks come first."""
        with self._changed:
            self._changed.wait_for(lambda: not self._clicks, timeout=self._patience)
            self._changed.wait_for(lambda: not self._is_frame_running)
            self._is_frame_running = True
        try:
            yield
        finally:
            with self._changed:
                self._is_frame_running = False
                self._changed.notify_all()

"""Prefetching: frames are decoded and preprocessed in a thread while the model computes.

    with Prefetcher(source, lambda frames: [resize_video_frame(f, 1024) for f in frames]) as ready:
        for index, tensor in ready:
            ...

One thread runs a few frames ahead and then waits. Frames that cannot be read are left out if the
source skips damage (their indices are in `source.damage`); any other exception is raised in the
loop at its frame. The thread ends with the loop, and when the prefetcher is closed or collected.
"""

import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from samgraph.errors import OptionError, VideoError
from samgraph.media.image.reading import Rgb
from samgraph.media.video.source import FrameSource, MissingFrameError

T = TypeVar("T")

AHEAD = 3
PATIENCE = 5.0


class Prefetcher(Generic[T], Iterator[tuple[int, T]]):
    """An iterator of (frame index, prepared frame), computed by its own thread.

    At most `ahead` prepared frames are queued when more are begun.

    Args:
        source: The frame source.
        prepare: Applied in the thread to some frames, uint8 [H, W, 3]; returns as many results.
        start: The first frame; in reverse, the last frame if omitted.
        stop: The frame to stop before, as in `range`; all frames if omitted.
        reverse: Iterate towards frame 0.
        ahead: The capacity of the queue.
        at_once: How many frames are prepared together; fewer at the end or before a missing frame.
    """

    def __init__(
        self,
        source: FrameSource,
        prepare: Callable[[Sequence[Rgb]], Sequence[T]],
        *,
        start: int | None = None,
        stop: int | None = None,
        reverse: bool = False,
        ahead: int = AHEAD,
        at_once: int = 1,
    ) -> None:
        if ahead < 1:
            raise OptionError("at least one frame must be prepared ahead", got=f"`ahead={ahead}`")
        self._queue: _Queue[T] = _Queue(ahead)
        indices = _indices(source, start, stop, reverse)
        # The thread refers to the queue, never to the prefetcher: so an unused prefetcher is
        # collected, and its finalizer, which also runs at exit, stops the thread.
        thread = threading.Thread(
            target=_work,
            args=(self._queue, source, prepare, indices, at_once),
            name="samgraph-prefetch",
            daemon=True,
        )
        self._finish = weakref.finalize(self, _stop, self._queue, thread)
        thread.start()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> tuple[int, T]:
        """The next frame; blocks until it is ready."""
        return self._queue.get()

    def close(self) -> None:
        """Stop the thread and drop what it has prepared. May be called twice."""
        self._finish()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


class _Queue(Generic[T]):
    """A bounded queue that can end, end with an error, or be stopped by the reader."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._waiting: deque[tuple[int, T]] = deque()
        self._changed = threading.Condition()
        self._is_ended = False
        self._error: BaseException | None = None
        self.is_stopped = False

    def has_room(self) -> bool:
        """Wait for room for one more item; False once stopped."""
        with self._changed:
            while len(self._waiting) >= self._most and not self.is_stopped:
                self._changed.wait()
            return not self.is_stopped

    def put(self, index: int, value: T) -> None:
        """Add a prepared frame."""
        with self._changed:
            if not self.is_stopped:
                self._waiting.append((index, value))
                self._changed.notify_all()

    def end(self, error: BaseException | None = None) -> None:
        """Mark the end; the reader gets `error` after the queued items."""
        with self._changed:
            self._is_ended, self._error = True, error
            self._changed.notify_all()

    def stop(self) -> None:
        """Stop: wake all waiters and drop the queued items."""
        with self._changed:
            self.is_stopped = True
            self._waiting.clear()
            self._changed.notify_all()

    def get(self) -> tuple[int, T]:
        """The next prepared frame, the error, or `StopIteration`."""
        with self._changed:
            while not (self._waiting or self._is_ended or self.is_stopped):
                self._changed.wait()
            if self._waiting:
                self._changed.notify_all()
                return self._waiting.popleft()
            error, self._error = self._error, None
        if error is not None and not self.is_stopped:
            raise error
        raise StopIteration


def _work(
    queue: _Queue[T],
    source: FrameSource,
    prepare: Callable[[Sequence[Rgb]], Sequence[T]],
    indices: Iterable[int],
    at_once: int,
) -> None:
    """The thread: prepare frames until the end, an error, or `stop`."""
    read: dict[int, Rgb] = {}

    def pass_on() -> None:
        if read and not queue.is_stopped:
            for index, made in zip(read, prepare(list(read.values())), strict=True):
                queue.put(index, made)
            read.clear()

    error: BaseException | None = None
    try:
        for index, frame in _frames(source, indices, queue):
            read[index] = frame
            if len(read) >= at_once:
                pass_on()
            del frame
    except BaseException as caught:
        error = caught
    try:
        pass_on()
    except BaseException as caught:
        error = error or caught
    queue.end(error)


def _frames(
    source: FrameSource, indices: Iterable[int], queue: "_Queue[Any]"
) -> Iterator[tuple[int, Rgb]]:
    """Frames by index, as there is room; without missing frames."""
    is_open_ended = source.length is None
    for index in indices:
        if not queue.has_room():
            return
        try:
            yield index, source.frame(index)
        except MissingFrameError:
            continue
        except VideoError:
            # The end of an iterator is known only after requesting the frame behind it.
            if is_open_ended and source.length is not None and index >= source.length:
                return
            raise


def _indices(
    source: FrameSource, start: int | None, stop: int | None, reverse: bool
) -> Iterable[int]:
    length = source.length
    if reverse:
        if start is None and length is None:
            raise OptionError(f"the last frame of {source.name} is not known", hint="give `start`")
        first = (length or 0) - 1 if start is None else start
        return range(first, -1 if stop is None else stop, -1)
    if stop is None:
        return count(start or 0) if length is None else range(start or 0, length)
    return range(start or 0, stop if length is None else min(stop, length))


def _stop(queue: _Queue[T], thread: threading.Thread) -> None:
    queue.stop()
    if thread is not threading.current_thread() and thread.ident is not None:
        thread.join(PATIENCE)

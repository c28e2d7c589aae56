"""Frames decoded and prepared ahead of use, so that decoding overlaps computing.

    with Prefetcher(source, lambda frames: [resize_video_frame(f, 1024) for f in frames]) as ready:
        for index, tensor in ready:
            ...

One thread works ahead by a few frames and then waits. Frames that cannot be read are left out if
the source skips damage (their numbers are in `source.damage`); any other exception comes out of
the loop at the frame it belongs to. The thread ends when the loop does, when the prefetcher is
closed, and when it is forgotten.
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
    """An iterator of (frame number, prepared frame), made by a thread of its own.

    At most `ahead` prepared frames wait when more are begun.

    Args:
        source: Where frames come from.
        prepare: What to do with frames, in the thread: some uint8 [H, W, 3] to as many of anything.
        start: The first frame; the last one if omitted in reverse.
        stop: The frame to stop before, as in `range`; all of them if omitted.
        reverse: Go towards frame 0.
        ahead: How many prepared frames may wait.
        at_once: How many frames are prepared together; less where they end or one is missing.
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
        self._line: _Line[T] = _Line(ahead)
        indices = _indices(source, start, stop, reverse)
        # The thread holds the line, never the prefetcher: so a forgotten prefetcher is collected,
        # and its finalizer, which also runs when Python ends, stops the thread.
        thread = threading.Thread(
            target=_work,
            args=(self._line, source, prepare, indices, at_once),
            name="samgraph-prefetch",
            daemon=True,
        )
        self._finish = weakref.finalize(self, _stop, self._line, thread)
        thread.start()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> tuple[int, T]:
        """The next frame, waiting for it if need be."""
        return self._line.get()

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


class _Line(Generic[T]):
    """A bounded queue with an end, an error at the end, and a way to be called off."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._waiting: deque[tuple[int, T]] = deque()
        self._changed = threading.Condition()
        self._is_ended = False
        self._error: BaseException | None = None
        self.is_stopped = False

    def has_room(self) -> bool:
        """Wait for room for one more; False once called off."""
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
        """Nothing more will come; the reader gets `error` after what is waiting."""
        with self._changed:
            self._is_ended, self._error = True, error
            self._changed.notify_all()

    def stop(self) -> None:
        """Call off: whoever waits goes on, and what waits is dropped."""
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
    line: _Line[T],
    source: FrameSource,
    prepare: Callable[[Sequence[Rgb]], Sequence[T]],
    indices: Iterable[int],
    at_once: int,
) -> None:
    """The thread: some frames at a time until the end, an error, or a call to stop."""
    read: dict[int, Rgb] = {}

    def pass_on() -> None:
        if read and not line.is_stopped:
            for index, made in zip(read, prepare(list(read.values())), strict=True):
                line.put(index, made)
            read.clear()

    error: BaseException | None = None
    try:
        for index, frame in _frames(source, indices, line):
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
    line.end(error)


def _frames(
    source: FrameSource, indices: Iterable[int], line: "_Line[Any]"
) -> Iterator[tuple[int, Rgb]]:
    """Frames by number, as there is room; without those that are missing."""
    is_open_ended = source.length is None
    for index in indices:
        if not line.has_room():
            return
        try:
            yield index, source.frame(index)
        except MissingFrameError:
            continue
        except VideoError:
            # An iterator tells its end only when it is asked for one frame too many.
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


def _stop(line: _Line[T], thread: threading.Thread) -> None:
    line.stop()
    if thread is not threading.current_thread() and thread.ident is not None:
        thread.join(PATIENCE)

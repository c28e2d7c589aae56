"""Server-sent events: the progress of a running track, for any number of listeners.

A listener that connects while a track runs, or reconnects, gets the last event; a slow listener
misses some.
"""

import asyncio
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import msgspec

MOST_KEPT = 256
KEEP_ALIVE_SECONDS = 15.0
# A listener that connects within this time of the end of a track gets its last event.
RECENT_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Event:
    """An event with its number, from 1."""

    number: int
    name: str
    data: bytes
    time: float

    def coded(self) -> bytes:
        """As it is sent."""
        return b"id: %d\nevent: %s\ndata: %s\n\n" % (self.number, self.name.encode(), self.data)


class Channel:
    """The events of one session. Published from any thread, followed in an event loop."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # a signal handler may interrupt a publisher
        self._events: deque[Event] = deque(maxlen=MOST_KEPT)
        self._number = 0
        self._wakers: set[Callable[[], object]] = set()
        self.is_closed = False

    def publish(self, name: str, value: Any) -> None:
        """Send an event to all listeners."""
        data = msgspec.json.encode(value)
        with self._lock:
            self._number += 1
            self._events.append(Event(self._number, name, data, time.monotonic()))
            wakers = list(self._wakers)
        for wake in wakers:
            wake()

    def close(self) -> None:
        """End all streams."""
        with self._lock:
            self.is_closed = True
            wakers = list(self._wakers)
        for wake in wakers:
            wake()

    def after(self, number: int) -> list[Event]:
        """The events after one of them."""
        with self._lock:
            return [event for event in self._events if event.number > number]

    def _is_news(self, last: Event, seen: int | None) -> bool:
        """Whether a listener gets the last event: not if it is the end of an old track."""
        if seen is not None:
            return last.number != seen
        return last.name == "progress" or time.monotonic() - last.time < RECENT_SECONDS

    @property
    def last(self) -> Event | None:
        """The last event."""
        with self._lock:
            return self._events[-1] if self._events else None

    async def follow(self, seen: int | None, is_over: Callable[[], bool]) -> AsyncIterator[bytes]:
        """The last event, unless it was `seen`, then those that come, as bytes of the stream."""
        loop, woken = asyncio.get_running_loop(), asyncio.Event()

        def wake() -> None:
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(woken.set)

        with self._lock:
            self._wakers.add(wake)
            last = self.last
        try:
            yield b"retry: 1000\n\n"  # whoever has read this misses nothing from now on
            number = 0 if last is None else last.number
            if last is not None and self._is_news(last, seen):
                yield last.coded()
            while not self.is_closed and not is_over():
                woken.clear()
                for event in self.after(number):
                    number = event.number
                    yield event.coded()
                try:
                    async with asyncio.timeout(KEEP_ALIVE_SECONDS):
                        await woken.wait()
                except TimeoutError:
                    yield b": still here\n\n"
        finally:
            with self._lock:
                self._wakers.discard(wake)

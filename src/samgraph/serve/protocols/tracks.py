"""Videos that tools have open: by id, a limited number, the least recently used closed first.

They hold nothing that the tool does not have itself, and do not survive a restart.
"""

import asyncio
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from samgraph.predict.video.result import FrameResult
from samgraph.predict.video.video import Video
from samgraph.serve.protocols.backend import Backend
from samgraph.serve.replies import RequestError
from samgraph.untrusted.text import shown

IDLE_SECONDS = 3600.0


class Closable(Protocol):
    """What a table of sessions holds."""

    def close(self) -> None:
        """Release everything; may be called while a frame is being tracked."""


Session = TypeVar("Session", bound=Closable)
Shown = TypeVar("Shown")


class Sessions(Generic[Session]):
    """Sessions by id; for one event loop."""

    def __init__(self, most: int, idle_seconds: float = IDLE_SECONDS) -> None:
        self._most, self._idle = most, idle_seconds
        self._table: OrderedDict[str, tuple[float, Session]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._table)

    def add(self, session: Session, name: str | None = None) -> str:
        """Keep a session under a new id, or under `name`; others may be closed."""
        name = secrets.token_urlsafe(12) if name is None else name
        self.close(name)
        self._table[name] = time.monotonic(), session
        for old in [key for key, (used, _) in self._table.items() if self._is_idle(used)]:
            self.close(old)
        while len(self._table) > self._most:
            self.close(next(iter(self._table)))
        return name

    def find(self, name: str) -> Session | None:
        """The session, if it is still there."""
        if name not in self._table:
            return None
        _, session = self._table.pop(name)
        self._table[name] = time.monotonic(), session
        return session

    def get(self, name: str) -> Session:
        """The session.

        Raises:
            RequestError: There is none, or no longer.
        """
        session = self.find(name)
        if session is None:
            raise RequestError(
                404, f"there is no session `{shown(name, 40)}`", hint="it may have been closed"
            )
        return session

    def close(self, name: str) -> bool:
        """Close a session; False where there is none."""
        if name not in self._table:
            return False
        self._table.pop(name)[1].close()
        return True

    def close_all(self) -> int:
        """Close all of them; returns how many."""
        names = list(self._table)
        return sum(self.close(name) for name in names)

    def _is_idle(self, used: float) -> bool:
        return time.monotonic() - used > self._idle


@dataclass(slots=True, eq=False)
class OpenVideo:
    """A video whose frames and prompts are used by one request at a time."""

    video: Video
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    is_closed: bool = False

    def close(self) -> None:
        """Release the video; a track stops at its next frame."""
        self.is_closed = True
        self.video.close()


async def next_frame(
    backend: Backend, frames: Iterator[FrameResult], show: Callable[[FrameResult], Shown]
) -> Shown | None:
    """One frame further, as `show` shows it, in a thread; None at the end. Clicks come first."""

    def step() -> Shown | None:
        found = next(frames, None)
        return None if found is None else show(found)

    return await backend.frame(step)

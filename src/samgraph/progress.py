"""Progress of long work: a callback, one line on a terminal, or lines in a log.

    with Progress(900, "frames", show=True) as progress:
        for frame in frames:
            ...
            progress.advance()

On a terminal one line is rewritten in place and removed at the end; elsewhere, such as in a log, a
line is added every 15 seconds. Everything goes to standard error.
"""

import sys
import time
from collections.abc import Callable, Generator
from contextlib import closing
from types import TracebackType
from typing import Self, TextIO, TypeAlias, TypeVar

from samgraph.errors import printable

# A function of the amount done and the total; True for text, False for nothing; None for text where
# standard error is a terminal.
ShowProgress: TypeAlias = bool | Callable[[int, int], object] | None

Item = TypeVar("Item")

TERMINAL_SECONDS = 0.2
LOG_SECONDS = 15.0


class Progress:
    """Counts the work done of `total`; `done` is the work of an earlier run.

    A total of 0 is unknown.
    """

    def __init__(
        self, total: int, unit: str, *, name: str = "", done: int = 0, show: ShowProgress = None
    ) -> None:
        self.total, self.done = total, done
        self.fresh = 0  # done in this run
        self._unit, self._name = unit, printable(name)
        self._notes: set[str] = set()
        self._call = show if callable(show) else None
        if not isinstance(show, bool):
            show = show is None and _is_terminal(sys.stderr)
        self._is_shown = show and sys.stderr is not None
        self._started = self._printed = time.monotonic()
        self._width = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.finish()

    @property
    def rate(self) -> float:
        """Units per second in this run."""
        return self.fresh / max(time.monotonic() - self._started, 1e-9)

    @property
    def text(self) -> str:
        """Such as `120 of 900 frames, 1.9 per second, 6:51 left`."""
        left = (self.total - self.done) / max(self.rate, 1e-9)
        name = f"{self._name}: " if self._name else ""
        if not self.total:
            return f"{name}{self.done} {self._unit}, {pace(self.rate)}"
        count = f"{self.done} of {self.total} {self._unit}"
        return f"{name}{count}, {pace(self.rate)}, {clock(left)} left"

    def advance(self, count: int = 1) -> None:
        """Add `count` units of work."""
        self.done += count
        self.fresh += count
        if self._call is not None:
            self._call(self.done, self.total)
        if not self._is_shown:
            return
        wait = TERMINAL_SECONDS if _is_terminal(sys.stderr) else LOG_SECONDS
        if time.monotonic() - self._printed >= wait:
            self._print(sys.stderr)

    def note(self, text: str) -> None:
        """Print a separate line, once."""
        if text in self._notes:
            return
        self._notes.add(text)
        self.finish()
        sys.stderr.write(printable(text) + "\n")

    def finish(self) -> None:
        """Remove the line from a terminal."""
        if self._width:
            sys.stderr.write("\r" + " " * self._width + "\r")
            sys.stderr.flush()
            self._width = 0

    def _print(self, stream: TextIO) -> None:
        self._printed = time.monotonic()
        text = self.text
        if stream.isatty():
            stream.write("\r" + text.ljust(self._width))
            self._width = len(text)
        else:
            stream.write(text + "\n")
        stream.flush()


def counted(
    items: Generator[Item, None, None], total: int, unit: str, show: ShowProgress
) -> Generator[Item, None, None]:
    """The items, with progress shown as they are taken."""
    with closing(items), Progress(total, unit, show=show) as progress:
        for item in items:
            yield item
            progress.advance()


def pace(rate: float) -> str:
    """A rate per second, or per minute or hour where it is slow: 1.9 per second, 0.8 per minute."""
    for seconds, unit in ((1, "second"), (60, "minute"), (3600, "hour")):
        if rate * seconds >= 0.1:
            return f"{rate * seconds:.1f} per {unit}"
    return f"{rate:.1f} per second"


def clock(seconds: float) -> str:
    """Minutes and seconds, or hours as well: 6:51, 1:06:51."""
    whole = round(min(seconds, 359_999))
    hours, rest = divmod(whole, 3600)
    minutes, secs = divmod(rest, 60)
    return f"{hours}:{minutes:02d}:{secs:02d}" if hours else f"{minutes}:{secs:02d}"


def _is_terminal(stream: TextIO | None) -> bool:
    return stream is not None and stream.isatty()

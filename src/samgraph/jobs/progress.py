"""How far a long job is: frames a second and time left.

On a terminal one line is written over and over; elsewhere, such as in a log, a line now and then.
"""

import sys
import time
from typing import TextIO

from samgraph.errors import printable

TERMINAL_SECONDS = 0.2
LOG_SECONDS = 15.0


class Progress:
    """Counts frames and says so on standard error."""

    def __init__(self, total: int, *, done: int = 0, is_quiet: bool = False) -> None:
        self._total, self._done, self._is_quiet = total, done, is_quiet
        self.fresh = 0
        self._started = self._said = time.monotonic()
        self._width = 0
        self._noted: set[str] = set()

    @property
    def done(self) -> int:
        """Frames that are done, those of an earlier run included."""
        return self._done

    @property
    def rate(self) -> float:
        """Frames a second in this run."""
        return self.fresh / max(time.monotonic() - self._started, 1e-9)

    def step(self) -> None:
        """One frame more."""
        self._done += 1
        self.fresh += 1
        stream = sys.stderr
        wait = TERMINAL_SECONDS if stream.isatty() else LOG_SECONDS
        if not self._is_quiet and time.monotonic() - self._said >= wait:
            self._say(stream)

    def finish(self) -> None:
        """End the line on a terminal."""
        if self._width and not self._is_quiet:
            self._say(sys.stderr)
            sys.stderr.write("\n")
            self._width = 0

    def note(self, text: str) -> None:
        """Say something on a line of its own, once."""
        if text in self._noted:
            return
        self._noted.add(text)
        sys.stderr.write(("\n" if self._width else "") + printable(text) + "\n")
        self._width = 0

    def _say(self, stream: TextIO) -> None:
        self._said = time.monotonic()
        text = self.text()
        if stream.isatty():
            stream.write("\r" + text.ljust(self._width))
            self._width = len(text)
        else:
            stream.write(text + "\n")
        stream.flush()

    def text(self) -> str:
        """Such as `120 of 900 frames, 1.9 a second, 6:51 left`."""
        left = (self._total - self._done) / max(self.rate, 1e-9)
        return f"{self._done} of {self._total} frames, {self.rate:.1f} a second, {clock(left)} left"


def clock(seconds: float) -> str:
    """Minutes and seconds, or hours as well: 6:51, 1:06:51."""
    whole = round(min(seconds, 359_999))
    hours, rest = divmod(whole, 3600)
    minutes, secs = divmod(rest, 60)
    return f"{hours}:{minutes:02d}:{secs:02d}" if hours else f"{minutes}:{secs:02d}"

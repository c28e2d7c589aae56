"""How long steps of a stream take."""

from collections import deque
from dataclasses import dataclass

import numpy as np

LATEST = 2048


@dataclass(frozen=True, slots=True)
class Latency:
    """Seconds per step: half of the steps take at most `p50`, 99 of 100 at most `p99`.

    Of the latest two thousand steps; `steps` counts all of them.
    """

    steps: int
    p50: float
    p99: float
    worst: float

    def __str__(self) -> str:
        parts = (("p50", self.p50), ("p99", self.p99), ("worst", self.worst))
        text = ", ".join(f"{name} {seconds * 1e3:.0f} ms" for name, seconds in parts)
        return f"{self.steps} steps: {text}"


class Stopwatch:
    """Collects times, in constant memory."""

    def __init__(self) -> None:
        self._times: deque[float] = deque(maxlen=LATEST)
        self._steps = 0

    def add(self, seconds: float) -> None:
        """One more step."""
        self._times.append(seconds)
        self._steps += 1

    @property
    def report(self) -> Latency:
        """The figures so far; zeros where there was no step."""
        times = np.array(self._times or [0.0])
        p50, p99 = np.percentile(times, [50, 99])
        return Latency(self._steps, float(p50), float(p99), float(times.max()))

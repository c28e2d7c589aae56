"""Memories dropped by the bank, thinned so that tracking can be resumed every few frames.

At first everything is kept. When that is too much, only what is read at every sixteenth frame
stays, then at every thirty-second, and so on: a correction far back, or a run from the middle,
then tracks again from the frame before it that is complete, and gives the same numbers.
"""

from collections.abc import Iterable

from samgraph.predict.video.bank import Memory
from samgraph.predict.video.policy import MemoryPolicy, Position

FIRST_INTERVAL = 16


class Archive:
    """The memories of one object that are no longer read, within a size."""

    def __init__(self, policy: MemoryPolicy, length: int | None) -> None:
        self._policy, self._length = policy, length
        self._kept: dict[int, tuple[Memory, bool]] = {}
        self._interval = 1
        self.nbytes = 0

    def __contains__(self, frame: int) -> bool:
        return frame in self._kept

    def put(self, dropped: Iterable[tuple[int, Memory]], is_reverse: bool, limit: float) -> None:
        """Keep what the bank dropped while tracking in a direction, if it is worth it."""
        for frame, memory in dropped:
            self.discard(frame)
            thinned = self._thinned(frame, memory, is_reverse)
            if thinned is not None and limit > 0:
                self._kept[frame] = thinned, is_reverse
                self.nbytes += thinned.nbytes
        while self.nbytes > limit and self._kept:
            self._thin()

    def take(self, frame: int) -> Memory | None:
        """The memory of a frame, which goes back to the bank."""
        memory = self._kept[frame][0] if frame in self._kept else None
        self.discard(frame)
        return memory

    def discard(self, frame: int) -> None:
        """Drop one frame."""
        if frame in self._kept:
            self.nbytes -= self._kept.pop(frame)[0].nbytes

    def clear(self) -> None:
        """Drop everything."""
        self._kept.clear()
        self._interval, self.nbytes = 1, 0

    def _thin(self) -> None:
        """Keep what resuming at half as many frames needs."""
        self._interval = max(2 * self._interval, FIRST_INTERVAL)
        for frame, (memory, is_reverse) in list(self._kept.items()):
            self.discard(frame)
            thinned = self._thinned(frame, memory, is_reverse)
            if thinned is not None:
                self._kept[frame] = thinned, is_reverse
                self.nbytes += thinned.nbytes

    def _thinned(self, frame: int, memory: Memory, is_reverse: bool) -> Memory | None:
        """The part of a memory that is read at the next frame where tracking can be resumed."""
        if self._interval == 1:
            return memory
        step = self._interval
        index = (frame - 1) // step * step if is_reverse else (frame // step + 1) * step
        position = Position(index, is_reverse, self._length)
        masks, pointers = self._policy.kept([frame], position)
        if masks:
            return memory
        if pointers:
            return Memory(None, memory.pointer)
        return None

"""Which frames a run of tracking has."""

from collections.abc import Iterable


def last_frame(length: int | None, end: int | None, is_reverse: bool) -> int | None:
    """The last frame of a run in a video of so many frames, as far as that is known."""
    if is_reverse:
        return end or 0
    if length is None:
        return end
    return length - 1 if end is None else min(end, length - 1)


def count_frames(length: int | None, runs: Iterable[tuple[int, int | None, bool]]) -> int:
    """How many frames runs have, each from, to, and whether backward; 0 where not known."""
    total = 0
    for begin, end, is_reverse in runs:
        last = last_frame(length, end, is_reverse)
        if last is None:
            return 0
        total += abs(last - begin) + 1
    return total

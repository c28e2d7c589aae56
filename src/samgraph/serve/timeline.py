"""The timeline of a tracked video: where objects are, and which frames to review."""

from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from samgraph.serve.mask_file import Lane
from samgraph.serve.schema import Lane as LaneReply
from samgraph.serve.schema import Range, Review, TimelineReply

# A score this far below the object's median is low.
LOW_SHARE = 0.7
# The area of an object changes by less from one frame to the next.
AREA_JUMP = 1.7
MOST_REVIEWS = 500


def timeline(
    frames: int | None, lanes: Mapping[int, Lane], prompts: Mapping[int, list[int]],
    versions: Mapping[int, int],
) -> TimelineReply:  # fmt: skip
    """The timeline of the objects in `prompts`; `versions` are those of their prompts now."""
    objects: list[LaneReply] = []
    reviews: list[Review] = []
    for obj, prompted in prompts.items():
        lane = lanes.get(obj) or Lane()
        known = lane.known
        stale = known & (lane.version != versions.get(obj, 0))
        low = low_scores(lane)
        objects.append(
            LaneReply(
                obj,
                sorted(prompted),
                ranges(known),
                ranges(known & lane.present),
                ranges(low),
                ranges(stale),
            )
        )
        reviews += review(obj, lane, low)
    reviews.sort(key=lambda entry: (entry.frame, entry.object))
    return TimelineReply(frames, objects, reviews[:MOST_REVIEWS])


def low_scores(lane: Lane) -> NDArray[np.bool_]:
    """The frames on which an object is present with a low score, [F]."""
    seen = lane.known & lane.present
    if not seen.any():
        return seen
    median = float(np.median(lane.score[seen]))
    low: NDArray[np.bool_] = seen & ~lane.prompted & (lane.score < LOW_SHARE * median)
    return low


def review(obj: int, lane: Lane, low: NDArray[np.bool_]) -> Iterator[Review]:
    """The frames of one object to review."""
    known, present = lane.known, lane.present
    both = known[1:] & known[:-1]
    for frame in (np.flatnonzero(both & present[:-1] & ~present[1:]) + 1).tolist():
        yield Review(frame, obj, "disappeared")
    for frame in (np.flatnonzero(both & ~present[:-1] & present[1:]) + 1).tolist():
        yield Review(frame, obj, "came back")
    before, after = lane.area[:-1], lane.area[1:]
    seen = both & present[:-1] & present[1:] & (before > 0) & (after > 0)
    jumps = seen & ((after > AREA_JUMP * before) | (before > AREA_JUMP * after))
    for frame in (np.flatnonzero(jumps) + 1).tolist():
        yield Review(frame, obj, "area jump")
    for first, _ in ranges(low):
        yield Review(first, obj, "low score")


def ranges(flags: NDArray[np.bool_]) -> list[Range]:
    """The runs of frames that are set, first and last of each."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], flags, [False]]).astype(np.int8)))
    return [(int(a), int(b) - 1) for a, b in zip(edges[::2], edges[1::2], strict=True)]

"""Counting what a tracker is made to do."""

from collections.abc import Sequence
from typing import Any

from samgraph.predict.video.memory_bank import Recalled
from samgraph.predict.video.stream import Stream
from samgraph.predict.video.tracker import Features
from samgraph.predict.video.video import Video


class Counts:
    """How often frames were encoded, and objects tracked, since the last look."""

    def __init__(self, session: Video | Stream) -> None:
        tracker = session.follower.tracker
        self.encoded = self.tracked = 0
        encode, track = tracker.encode, tracker.track

        def counted_encode(pixels: Any) -> Features:
            self.encoded += 1
            return encode(pixels)

        def counted_track(features: Features, recalled: Sequence[Recalled]) -> Any:
            self.tracked += len(recalled)
            return track(features, recalled)

        tracker.encode = counted_encode  # type: ignore[method-assign]  # watched in tests only
        tracker.track = counted_track  # type: ignore[method-assign]  # watched in tests only

    def look(self) -> tuple[int, int]:
        """Frames encoded and objects tracked; both start again at zero."""
        found = self.encoded, self.tracked
        self.encoded = self.tracked = 0
        return found

"""Gated memory: only frames on which the object was found reliably are remembered.

    SAM 2      reads the last six frames, whatever was on them: after an occlusion, six empty ones
    gated      reads the last six reliable frames, however far back, and always the frame before

Positions in time are ranks: the third reliable frame back counts as three frames back.
"""

from collections.abc import Collection, Container, Iterable
from dataclasses import dataclass

from samgraph.predict.video.policies.history import History, nearest
from samgraph.predict.video.policy import Position, ReferencePolicy, Selection


@dataclass(frozen=True, slots=True)
class GatedPolicy(ReferencePolicy):
    """The rule for what is read; which frames are reliable is for a subclass to say."""

    def choose(
        self,
        position: Position,
        prompted: Collection[int],
        tracked: Container[int],
        history: History | None = None,
    ) -> Selection:
        """Prompted frames as SAM 2 reads them, then reliable ones from the oldest to the newest."""
        given = ReferencePolicy.choose(self, position, prompted, ())
        read = {frame for frame, _, _ in given.masks}
        last = position.frame + (1 if position.is_reverse else -1)
        passed = nearest((history or History()).reliable, position, given.longest)
        frames = [last, *(frame for frame in passed if frame != last)]
        frames = [f for f in frames if f in tracked and f not in prompted and f not in read]
        ranked = list(enumerate(frames))
        masks = [(frame, rank, False) for rank, frame in ranked[: self.memory_frames - 1]]
        pointers = [(frame, rank + 1, False) for rank, frame in ranked[: given.longest]]
        return Selection(
            (*given.masks, *reversed(masks)), (*given.pointers, *pointers), given.longest
        )

    def kept(
        self, frames: Iterable[int], position: Position, history: History | None = None
    ) -> tuple[set[int], set[int]]:
        """The reliable frames that can still be read, and this frame."""
        now, back = position.frame, -1 if position.is_reverse else 1
        most = max(self._reach(position)[1] - 1, 1)
        passed = nearest((history or History()).reliable, position, most, with_own=True)
        known = set(frames)
        ahead = {frame for frame in known if (now - frame) * back <= 0}
        masks = ahead | (known & set(passed[: self.memory_frames - 1]))
        return masks, ahead | (known & set(passed))

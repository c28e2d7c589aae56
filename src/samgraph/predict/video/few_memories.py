"""A memory policy that reads fewer tracked frames than another would."""

from collections.abc import Collection, Container, Iterable
from dataclasses import dataclass, replace

from samgraph.models.family import SegmentationModel
from samgraph.predict.video.policy import MemoryPolicy, Position, Selection


@dataclass(frozen=True, slots=True)
class FewMemories:
    """Reads what `policy` selects, but of tracked frames only the last `most` mask memories.

    Prompted frames and pointers are all read; what is kept is what `policy` keeps.
    """

    policy: MemoryPolicy
    most: int

    def choose(
        self, position: Position, prompted: Collection[int], tracked: Container[int]
    ) -> Selection:
        """The selection of `policy`, less its older tracked frames."""
        found = self.policy.choose(position, prompted, tracked)
        recent = [read for read in found.masks if not read[2]][-self.most :]
        return replace(found, masks=tuple(m for m in found.masks if m[2] or m in recent))

    def kept(self, frames: Iterable[int], position: Position) -> tuple[set[int], set[int]]:
        """As `policy`."""
        return self.policy.kept(frames, position)

    def keeps_prompted(self, frame: int, position: Position, prompted: Collection[int]) -> bool:
        """As `policy`."""
        return self.policy.keeps_prompted(frame, position, prompted)


def most_tracked(model: SegmentationModel) -> int | None:
    """The most tracked frames that the model's approximation reads; None: as the policy says."""
    chosen = model.session.options.chosen_approximation
    return None if chosen is None else chosen.tracked_frames

"""distractor-aware: frames that show the object beside a distractor are kept as anchors.

When the decoder is sure of its mask, and another of its masks covers something far beyond it, the
frame shows the object beside a distractor. Such a frame is read from then on as a prompted one is:
at most four of them, the nearest, beside what SAM 2 reads. The rule is that of DAM4SAM (Videnovic
et al. 2025).

    of another mask, what is outside the best one, and of that the largest connected part, is a
    distractor if the box around it and the best mask is much larger than the best mask's box

A mask of a part of the object has nothing outside, so parts are no distractors.
"""

from collections.abc import Collection, Container, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from samgraph.media.mask.components import connected_components
from samgraph.media.mask.geometry import masks_to_boxes
from samgraph.predict.video.policies.history import (
    Candidates,
    History,
    Observation,
    box_overlaps,
    nearest,
)
from samgraph.predict.video.policy import Position, ReferencePolicy, Selection


@dataclass(frozen=True, slots=True)
class DistractorAwarePolicy(ReferencePolicy):
    """What SAM 2 reads, and anchors.

    Args:
        most_anchors: The most anchors that are read.
        anchor_iou: The predicted IoU above which a frame may become an anchor.
        area_change: How far its area may be from the median of the last frames, as a fraction.
        area_frames: How many last frames those are.
        anchor_gap: An anchor is more than so many frames from the last one.
        divergence: The IoU of the best mask's box with the box around it and another mask, at or
            below which that mask shows a distractor.
    """

    most_anchors: int = 4
    anchor_iou: float = 0.8
    area_change: float = 0.2
    area_frames: int = 10
    anchor_gap: int = 5
    divergence: float = 0.7

    @property
    def compares_masks(self) -> bool:
        """All of them."""
        return True

    def observe(self, history: History, position: Position, candidates: Candidates) -> Observation:
        """The best mask, and whether its frame becomes an anchor."""
        best = candidates.best
        box = candidates.boxes[best]
        return Observation(
            best,
            candidates.score,
            float(candidates.ious[best]),
            float(candidates.areas[best]),
            (float(box[0]), float(box[1]), float(box[2]), float(box[3])),
            is_anchor=self._is_anchor(history, position, candidates, best),
        )

    def choose(
        self,
        position: Position,
        prompted: Collection[int],
        tracked: Container[int],
        history: History | None = None,
    ) -> Selection:
        """What SAM 2 reads if the anchors had been prompted."""
        anchors = {
            frame
            for frame in nearest((history or History()).anchors, position, self.most_anchors)
            if frame in tracked and frame not in prompted
        }
        found = ReferencePolicy.choose(self, position, [*prompted, *sorted(anchors)], tracked)
        return Selection(
            tuple((f, slot, given and f not in anchors) for f, slot, given in found.masks),
            tuple((f, steps, given and f not in anchors) for f, steps, given in found.pointers),
            found.longest,
        )

    def kept(
        self, frames: Iterable[int], position: Position, history: History | None = None
    ) -> tuple[set[int], set[int]]:
        """What SAM 2 keeps, and the anchors."""
        known = set(frames)
        masks, pointers = ReferencePolicy.kept(self, known, position)
        noted = (history or History()).anchors
        anchors = known & set(nearest(noted, position, self.most_anchors, with_own=True))
        return masks | anchors, pointers | anchors

    def _is_anchor(
        self, history: History, position: Position, candidates: Candidates, best: int
    ) -> bool:
        """Whether the object is surely there, of its usual size, and beside a look-alike."""
        area = float(candidates.areas[best])
        if candidates.score <= 0 or area <= 0 or candidates.ious[best] <= self.anchor_iou:
            return False
        last = nearest(history.anchors, position, 1)
        if last and abs(position.frame - last[0]) <= self.anchor_gap:
            return False
        usual = self._usual_area(history, position)
        if usual is None or abs(area - usual) > self.area_change * usual:
            return False
        return any(fit <= self.divergence for fit in _fits(candidates, best))

    def _usual_area(self, history: History, position: Position) -> float | None:
        """The median area on the last frames where the object was found."""
        back = -1 if position.is_reverse else 1
        frames = (position.frame - steps * back for steps in range(1, self.area_frames + 1))
        found = (history.observed.get(frame) for frame in frames)
        areas = [one.area for one in found if one is not None and one.area > 0]
        return float(np.median(areas)) if areas else None


def _fits(candidates: Candidates, best: int) -> Iterator[float]:
    """For each other mask with something outside the best: how well the best's box fits both."""
    own = candidates.masks[best]
    for place, mask in enumerate(candidates.masks):
        outside = mask & ~own
        if place != best and outside.any():
            both = masks_to_boxes((own | _largest_part(outside))[None])
            yield float(box_overlaps(candidates.boxes[best], both)[0])


def _largest_part(mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """The largest connected component of a mask that is not empty."""
    labels, areas = connected_components(mask)
    part: NDArray[np.bool_] = labels == 1 + int(np.argmax(areas[1:]))
    return part

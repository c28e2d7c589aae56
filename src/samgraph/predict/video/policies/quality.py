"""quality-gated: frames are remembered by the predicted quality of their masks.

    quality = max(0, 2 sigmoid(object score) - 1) * predicted IoU

A frame above 0.01 is reliable: one where the object is absent never is, one where it is barely
visible hardly. Of those, up to fifteen are read. The rule is that of memory selection in SAM 3.
"""

import math
from dataclasses import dataclass

from samgraph.predict.video.policies.gated import GatedPolicy
from samgraph.predict.video.policies.history import Candidates, History, Observation
from samgraph.predict.video.policy import Position


@dataclass(frozen=True, slots=True)
class QualityGatedPolicy(GatedPolicy):
    """Memory of frames whose quality is above a threshold.

    Args:
        least_quality: The quality above which a frame is remembered, 0 to 1.
    """

    least_quality: float = 0.01

    @property
    def compares_masks(self) -> bool:
        """Scores suffice."""
        return False

    def observe(self, history: History, position: Position, candidates: Candidates) -> Observation:
        """The best mask, and whether it is good enough."""
        best = candidates.best
        iou = float(candidates.ious[best])
        is_good = quality(candidates.score, iou) > self.least_quality
        is_due = position.frame % self.stride == 0
        return Observation(best, candidates.score, iou, is_reliable=is_good and is_due)


def quality(score: float, iou: float) -> float:
    """How good a frame is, 0 to 1, from its object score (a logit) and its predicted IoU."""
    return max(0.0, math.tanh(min(score, 100.0) / 2)) * iou  # 2 sigmoid(x) - 1 = tanh(x / 2)

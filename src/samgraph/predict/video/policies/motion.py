"""motion-aware: of the decoder's masks, the one that is where the object should be.

A Kalman filter of the object's box predicts where it will be. After 15 steady frames the mask with
the highest weight * IoU(predicted box, its box) + (1 - weight) * predicted IoU is taken, which may
be another than SAM 2's: among look-alikes, the one that goes on as the object did. Memory is
gated: frames where the object is there with an IoU above 0.5. The rule is that of SAMURAI (Yang et
al. 2024).
"""

from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from samgraph.models.family import ModelConfig
from samgraph.predict.video.policies import kalman
from samgraph.predict.video.policies.gated import GatedPolicy
from samgraph.predict.video.policies.history import (
    Candidates,
    History,
    Observation,
    box_overlaps,
)
from samgraph.predict.video.policy import Position

LARGE_WEIGHT = 0.15


@dataclass(frozen=True, slots=True)
class MotionAwarePolicy(GatedPolicy):
    """Masks chosen with the help of motion, and gated memory.

    Args:
        motion_weight: How much the predicted box counts, 0 to 1; 0.15 for large models, whose
            estimates of IoU are better.
        steady_frames: Frames in a row on which the object must be found before motion counts.
        steady_iou: The predicted IoU above which a frame counts as found.
        least_iou: The predicted IoU above which a frame is remembered.
    """

    motion_weight: float = 0.25
    steady_frames: int = 15
    steady_iou: float = 0.3
    least_iou: float = 0.5

    @classmethod
    def of(cls, config: ModelConfig, *, max_prompted: int | None = None, stride: int = 1) -> Self:
        """The policy of a model."""
        found = super(MotionAwarePolicy, cls).of(config, max_prompted=max_prompted, stride=stride)
        return replace(found, motion_weight=LARGE_WEIGHT) if "large" in config.name else found

    @property
    def compares_masks(self) -> bool:
        """All of them."""
        return True

    def observe(self, history: History, position: Position, candidates: Candidates) -> Observation:
        """The mask that fits motion and quality best."""
        before = history.before(position)
        steady = 0 if before is None else before.steady
        motion = None if before is None or before.motion is None else before.motion
        predicted = None if motion is None else kalman.predict(motion)
        choice = candidates.best
        if predicted is not None and steady >= self.steady_frames:
            fits = box_overlaps(kalman.box_of(predicted), candidates.boxes)
            weight = np.float32(self.motion_weight)
            choice = int(np.argmax(weight * fits + (1 - weight) * candidates.ious))
        iou, box = float(candidates.ious[choice]), candidates.boxes[choice]
        is_there = candidates.score > 0 and candidates.areas[choice] > 0
        found = Observation(
            choice,
            candidates.score,
            iou,
            float(candidates.areas[choice]),
            (float(box[0]), float(box[1]), float(box[2]), float(box[3])),
            is_reliable=is_there and iou > self.least_iou and position.frame % self.stride == 0,
        )
        if not is_there or iou <= self.steady_iou:
            return found
        state = kalman.begin(box) if predicted is None else kalman.update(predicted, box)
        return replace(found, steady=min(steady + 1, 1 << 20), motion=state)

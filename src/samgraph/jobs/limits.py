"""Limits of a run from `--max-memory-mb`: how many frames are kept, how many objects per batch.

Counted is what a run holds in addition to the model's weights and activations: frames being
prefetched, encoded frames, and the memories of objects.
"""

import math
from dataclasses import dataclass
from typing import Any

from samgraph.errors import CapacityError
from samgraph.media.video.file import FEWEST_KEPT, MOST_KEPT
from samgraph.media.video.prefetch import AHEAD
from samgraph.models.sam2.tracker_config import TrackerConfig
from samgraph.predict.video.feed import MEGABYTE

# Frames in the queue, the frame being decoded, and the frame being tracked.
FRAMES_IN_FLIGHT = AHEAD + 2


@dataclass(frozen=True, slots=True)
class Needs:
    """The sizes of a run: its model, frames, objects and prompts; the properties are in bytes."""

    config: TrackerConfig
    size_hw: tuple[int, int]
    objects: int
    prompts: int
    is_fp32: bool  # memories in float32
    at_once: int = 4  # objects per batch

    @property
    def decoded(self) -> int:
        """A decoded frame."""
        return 3 * self.size_hw[0] * self.size_hw[1]

    @property
    def waiting(self) -> int:
        """The frames between decoder and model."""
        return FRAMES_IN_FLIGHT * (self.decoded + 3 * 4 * self.config.image_size**2)

    @property
    def encoded(self) -> int:
        """An encoded frame."""
        return 4 * sum(map(math.prod, self.config.feature_maps.values()))

    @property
    def remembered(self) -> int:
        """Memories: the window, the same around the start to go back from, and prompted frames."""
        config = self.config
        masks = 2 * config.memory_frames * self.objects + self.prompts
        return masks * config.memory_tokens * config.memory_channels * (4 if self.is_fp32 else 2)

    @property
    def working(self) -> int:
        """The largest activations of memory attention, per object."""
        config = self.config
        return 4 * config.grid**2 * (config.memory_feedforward + 4 * config.channels)


def limits_within(megabytes: float, needs: Needs) -> dict[str, Any]:
    """The options of `open_video` that keep a run within `megabytes`.

    Raises:
        CapacityError: The least a run must hold does not fit.
    """
    least = needs.remembered + needs.waiting + 2 * needs.encoded + FEWEST_KEPT * needs.decoded
    spare = megabytes * MEGABYTE - least
    if spare < needs.working:
        need = (least + needs.working) / MEGABYTE
        noun = "object does" if needs.objects == 1 else "objects do"
        raise CapacityError(
            f"{needs.objects} {noun} not fit in {megabytes:g} MB",
            expected=f"at least {need:.0f} MB",
            hint=f"--max-memory-mb {need + 1:.0f}",
        )
    at_once = max(1, min(needs.at_once, needs.objects, int(spare // needs.working)))
    more = int((spare - at_once * needs.working) // needs.decoded)
    return {
        "cache_mb": needs.encoded / MEGABYTE,
        "objects_at_once": at_once,
        "cache_frames": min(MOST_KEPT, FEWEST_KEPT + more),
    }

"""What `samgraph track --max-memory-mb` allows: how much is kept, and how many objects run at once.

Counted is all that a run holds beside the model's weights and working memory: frames on their way
in, encoded frames, and what is remembered of objects.
"""

from dataclasses import dataclass
from typing import Any

from samgraph.errors import CapacityError
from samgraph.media.video.file import FEWEST_KEPT, MOST_KEPT
from samgraph.media.video.prefetch import AHEAD
from samgraph.models.sam2.config import Sam2Config
from samgraph.predict.video.feed import MEGABYTE

# Frames that wait, one in the making, and the one that is tracked.
ON_THE_WAY = AHEAD + 2


@dataclass(frozen=True, slots=True)
class Needs:
    """What a run is about: its model, frames, objects and prompts, in bytes where it says so."""

    config: Sam2Config
    size_hw: tuple[int, int]
    objects: int
    prompts: int
    is_wide: bool  # memory in float32
    at_once: int = 4  # objects that are worth running together

    @property
    def decoded(self) -> int:
        """Bytes of a frame as it was read."""
        return 3 * self.size_hw[0] * self.size_hw[1]

    @property
    def waiting(self) -> int:
        """Bytes of the frames on their way into the model."""
        return ON_THE_WAY * (self.decoded + 3 * 4 * self.config.image_size**2)

    @property
    def encoded(self) -> int:
        """Bytes of an encoded frame."""
        config = self.config
        fine = config.mask_size**2 * config.channels * 3 // 16
        return 4 * (config.grid**2 * config.channels + fine)

    @property
    def remembered(self) -> int:
        """Bytes of memory: the window, what is kept around the start to turn back, and prompts."""
        config = self.config
        masks = 2 * config.memory_frames * self.objects + self.prompts
        return masks * config.grid**2 * config.memory_channels * (4 if self.is_wide else 2)

    @property
    def working(self) -> int:
        """Bytes of a layer of attention, for one object."""
        config = self.config
        return 4 * config.grid**2 * (config.memory_feedforward + 4 * config.channels)


def limits_within(megabytes: float, needs: Needs) -> dict[str, Any]:
    """The options of `open_video` that keep a run within a size.

    Raises:
        CapacityError: What has to be kept does not fit.
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

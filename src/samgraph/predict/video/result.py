"""What tracking says about one frame.

Masks are made when they are asked for: a result holds low-resolution logits, about 260 KB an
object at 1024 pixels, or, where an earlier result is shown again, the run-length encoded mask.

Shapes: N objects, H and W of the frame, L mask size.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from samgraph.errors import OptionError, PromptError
from samgraph.formats.segment import Segment, SegmentedImage
from samgraph.media.drawing import overlay
from samgraph.media.image.preprocess import upscale_logits, upscale_masks
from samgraph.media.image.reading import Rgb
from samgraph.media.mask import rle as run_lengths
from samgraph.media.mask.geometry import mask_areas, masks_to_boxes
from samgraph.media.mask.rle import Rle
from samgraph.predict.video.memory_bank import Floats
from samgraph.predict.video.object_prompts import Mask, ObjectId
from samgraph.predict.video.overlaps import without_overlaps


@dataclass(frozen=True, slots=True)
class ObjectResult:
    """One object on one frame: its logits [L, L], or its encoded mask; and its scores."""

    name: ObjectId
    score: float
    iou: float
    is_prompted: bool = False
    low: Floats | None = None
    rle: Rle | None = None


@dataclass(frozen=True, slots=True)
class DisplayOptions:
    """How logits become masks.

    Args:
        mask_threshold: The logit above which a pixel belongs to an object.
        score_threshold: The object score above which an object counts as present.
        overlaps: Whether a pixel may belong to several objects.
    """

    mask_threshold: float = 0.0
    score_threshold: float = 0.0
    overlaps: bool = True


@dataclass(frozen=True)
class FrameResult:
    """All objects on one frame, in the order they were added.

    Attributes:
        index: The number of the frame, from 0.
        time: Seconds from the first frame; None where frames carry no time.
        size_hw: Height and width of the frame.
        image: The frame itself, where it was asked for.
    """

    index: int
    time: float | None
    size_hw: tuple[int, int]
    object_results: tuple[ObjectResult, ...]
    display: DisplayOptions = field(default_factory=DisplayOptions)
    image: Rgb | None = field(default=None, repr=False)

    def __repr__(self) -> str:
        names = ", ".join(f"{one.name!r}" for one in self.object_results)
        return f"<frame {self.index}: objects {names or 'none'}>"

    def __len__(self) -> int:
        return len(self.object_results)

    def __iter__(self) -> Iterator[tuple[ObjectId, Mask]]:
        return iter(zip(self.objects, self.masks, strict=True))

    @property
    def objects(self) -> tuple[ObjectId, ...]:
        """The ids of the objects; everything else is in their order."""
        return tuple(one.name for one in self.object_results)

    @property
    def scores(self) -> Floats:
        """The model's estimate of each mask's quality, 0 to 1: [N]."""
        return np.array([one.iou for one in self.object_results], np.float32)

    @property
    def object_scores(self) -> Floats:
        """How sure the model is that each object is to be seen, as logits: [N]."""
        return np.array([one.score for one in self.object_results], np.float32)

    @property
    def present(self) -> NDArray[np.bool_]:
        """Whether each object is to be seen: [N]."""
        return np.asarray(self.object_scores > self.display.score_threshold)

    @property
    def prompted(self) -> NDArray[np.bool_]:
        """Whether each object was prompted on this frame: [N]."""
        return np.array([one.is_prompted for one in self.object_results], np.bool_)

    @cached_property
    def masks(self) -> Mask:
        """The masks: bool [N, H, W], empty where an object is not present."""
        if not self.display.overlaps and len(self) > 1:
            masks = np.asarray(self.logits > self.display.mask_threshold)
            masks[~self.present] = False
            return masks
        masks = np.zeros((len(self), *self.size_hw), np.bool_)
        for mask, one, is_there in zip(masks, self.object_results, self.present, strict=True):
            if one.rle is not None:
                mask[:] = run_lengths.decode(one.rle)
            elif one.low is not None and is_there:
                mask[:] = upscale_masks(one.low, self.size_hw, self.display.mask_threshold)
        return masks

    @property
    def low_logits(self) -> Floats:
        """The logits as the model gives them: [N, L, L].

        Raises:
            OptionError: The frame shows an earlier result, of which only the masks were kept.
        """
        low = [one.low for one in self.object_results if one.low is not None]
        if len(low) < len(self):
            raise OptionError(
                f"the logits of frame {self.index} were not kept", hint="track(logits=True)"
            )
        return np.stack(low) if low else np.zeros((0, 1, 1), np.float32)

    @property
    def logits(self) -> Floats:
        """Mask logits at the size of the frame: float32 [N, H, W], made anew each time."""
        if not self.object_results:
            return np.zeros((0, *self.size_hw), np.float32)
        logits = upscale_logits(self.low_logits, self.size_hw)
        return logits if self.display.overlaps else without_overlaps(logits)

    @property
    def boxes(self) -> NDArray[np.int64]:
        """The tight box of each mask: [N, 4], left, top, right, bottom; zeros where it is empty."""
        return masks_to_boxes(self.masks)

    @property
    def areas(self) -> NDArray[np.int64]:
        """The number of pixels in each mask: [N]."""
        return mask_areas(self.masks)

    @cached_property
    def rles(self) -> tuple[Rle, ...]:
        """The masks, run-length encoded as COCO does."""
        if self.object_results and all(one.rle is not None for one in self.object_results):
            return tuple(one.rle for one in self.object_results if one.rle is not None)
        return tuple(run_lengths.encode_many(self.masks))

    def mask(self, object: ObjectId) -> Mask:
        """The mask of one object: bool [H, W]."""
        if object not in self.objects:
            raise PromptError(
                f"frame {self.index} has no object `{object}`",
                expected=", ".join(map(str, self.objects)) or "no object at all",
            )
        mask: Mask = self.masks[self.objects.index(object)]
        return mask

    def segments(self, numbers: Mapping[ObjectId, int] | None = None) -> SegmentedImage:
        """The frame for the writers of `samgraph.formats`; ids that are text become labels."""
        found = []
        for place, (one, rle) in enumerate(
            zip(self.object_results, self.rles, strict=True), start=1
        ):
            number = one.name if isinstance(one.name, int) else place
            found.append(
                Segment(
                    rle,
                    label=one.name if isinstance(one.name, str) else None,
                    score=one.iou,
                    object_id=numbers[one.name] if numbers else number,
                )
            )
        return SegmentedImage(f"{self.index:05d}.png", self.size_hw, tuple(found))

    def drawn(self, image: Rgb | None = None) -> Rgb:
        """The frame with its masks over it; `image` where the result does not hold it."""
        under = self.image if image is None else image
        if under is None:
            raise OptionError(
                f"frame {self.index} was not kept with its result", hint="track(images=True)"
            )
        numbers = [name if isinstance(name, int) else i for i, name in enumerate(self.objects, 1)]
        return overlay(under, self.masks, object_ids=numbers)

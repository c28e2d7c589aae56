"""The result of tracking on one frame.

Results hold low-resolution logits where the engine has them, about 260 KB per object at 1024
pixels. Masks are downloaded, enlarged and encoded when they are asked for.

Shapes: N objects, H and W of the frame, L mask size.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from samgraph.engines import Buffer, Buffers
from samgraph.engines.buffers import HOST_BUFFERS, DeviceImages
from samgraph.errors import DeviceMemoryError, OptionError, PromptError
from samgraph.formats.segment import Segment, SegmentedImage
from samgraph.media.drawing import overlay
from samgraph.media.image.preprocess import upscale_logits, upscale_masks
from samgraph.media.image.reading import Rgb
from samgraph.media.mask import rle as run_lengths
from samgraph.media.mask.geometry import mask_areas, masks_to_boxes
from samgraph.media.mask.rle import Rle
from samgraph.media.video.source import FrameSource, numbered_name
from samgraph.predict.output import Labels, MaskOutput, with_labels
from samgraph.predict.prompts import Floats, Mask
from samgraph.predict.video.options import DisplayOptions
from samgraph.predict.video.prompts import ObjectId
from samgraph.predict.video.step import Outcome, without_holes

# Bytes of a kept result without its mask: a record and its entry in a table.
RECORD_BYTES = 700
# What the logits of objects that lose a pixel are cut to.
LOSING_LOGIT = -10.0


@dataclass(slots=True, eq=False)
class ObjectResult:
    """One object on one frame: its logits [L, L] and scores [1], or its encoded mask."""

    name: ObjectId
    score: Buffer
    iou: Buffer
    is_prompted: bool = False
    logits: Buffer | None = None
    rle: Rle | None = None

    @classmethod
    def of(cls, name: ObjectId, outcome: Outcome, *, is_prompted: bool = False) -> "ObjectResult":
        """The result that shows an outcome."""
        return cls(name, outcome.score, outcome.iou, is_prompted, outcome.logits)

    @property
    def nbytes(self) -> int:
        """What it takes to keep it."""
        logits = 0 if self.logits is None else self.logits.nbytes
        return RECORD_BYTES + logits + (0 if self.rle is None else len(self.rle["counts"]))

    def compact(self) -> "ObjectResult":
        """The same without logits, where the mask is encoded already."""
        if self.rle is None or self.logits is None:
            return self
        return ObjectResult(self.name, self.score, self.iou, self.is_prompted, None, self.rle)


@dataclass(frozen=True)
class FrameResult(MaskOutput):
    """All objects on one frame, in the order they were added.

    Attributes:
        index: The number of the frame, from 0.
        time: Seconds from the first frame; None where frames carry no time.
        size_hw: Height and width of the frame.
        image: The frame itself, where it was asked for.
        numbers: The number of each object in pictures and files.
        source: Where the frame can be read again.
    """

    index: int
    time: float | None
    size_hw: tuple[int, int]
    object_results: tuple[ObjectResult, ...]
    display: DisplayOptions = field(default_factory=DisplayOptions)
    image: Rgb | None = field(default=None, repr=False)
    buffers: Buffers = field(default=HOST_BUFFERS, repr=False)
    numbers: Mapping[ObjectId, int] = field(default_factory=dict, repr=False)
    source: FrameSource | None = field(default=None, repr=False, compare=False)

    def __getstate__(self) -> dict[str, Any]:
        """Without the video, which stays in its process."""
        return {**self.__dict__, "name": self.name, "source": None, "numbers": dict(self.numbers)}

    def __repr__(self) -> str:
        names = ", ".join(f"{obj.name!r}" for obj in self.object_results)
        return f"<frame {self.index}: objects {names or 'none'}>"

    def __len__(self) -> int:
        return len(self.object_results)

    def __iter__(self) -> Iterator[tuple[ObjectId, Mask]]:
        return iter(zip(self.objects, self.masks, strict=True))

    @cached_property
    def name(self) -> str:
        """What the frame is called in written files: its own file name, or `00012.png`."""
        if self.source is None:
            return numbered_name(self.index)
        return self.source.frame_name(self.index)

    @property
    def objects(self) -> tuple[ObjectId, ...]:
        """The ids of the objects; everything else is in their order."""
        return tuple(obj.name for obj in self.object_results)

    @cached_property
    def scores(self) -> Floats:
        """The model's estimate of each mask's quality, 0 to 1: [N]."""
        return self._numbers([obj.iou for obj in self.object_results])

    @cached_property
    def object_scores(self) -> Floats:
        """How sure the model is that each object is visible, as logits: [N]."""
        return self._numbers([obj.score for obj in self.object_results])

    @property
    def present(self) -> NDArray[np.bool_]:
        """Whether each object is visible: [N]."""
        return np.asarray(self.object_scores > self.display.score_threshold)

    @property
    def prompted(self) -> NDArray[np.bool_]:
        """Whether each object was prompted on this frame: [N]."""
        return np.array([obj.is_prompted for obj in self.object_results], np.bool_)

    @cached_property
    def masks(self) -> Mask:
        """The masks: bool [N, H, W], empty where an object is not present."""
        if not self.display.overlaps and len(self) > 1:
            masks = np.asarray(self.logits > self.display.mask_threshold)
            masks[~self.present] = False
            return masks
        if self.buffers.images is not None and not self.display.fill_holes:
            with suppress(DeviceMemoryError):  # the host enlarges as well
                return self._downloaded_masks(self.buffers.images)
        masks = np.zeros((len(self), *self.size_hw), np.bool_)
        for mask, obj, is_there in zip(masks, self.object_results, self.present, strict=True):
            if obj.rle is not None:
                mask[:] = run_lengths.decode(obj.rle)
            elif obj.logits is not None and is_there:
                low = self._low(obj.logits)
                mask[:] = upscale_masks(low, self.size_hw, self.display.mask_threshold)
        return masks

    @cached_property
    def low_logits(self) -> Floats:
        """The logits as the model gives them: [N, L, L].

        Raises:
            OptionError: The frame shows an earlier result, of which only the masks were kept.
        """
        low = [self._low(obj.logits) for obj in self.object_results if obj.logits is not None]
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
        known = [obj.rle for obj in self.object_results if obj.rle is not None]
        if len(known) == len(self):
            return tuple(known)
        encoded = tuple(run_lengths.encode_many(self.masks))
        if self.display.overlaps:  # else a mask depends on the objects beside it
            for obj, rle in zip(self.object_results, encoded, strict=True):
                obj.rle = rle
        return encoded

    def mask(self, object: ObjectId) -> Mask:
        """The mask of one object: bool [H, W]."""
        if object not in self.objects:
            raise PromptError(
                f"frame {self.index} has no object `{object}`",
                expected=", ".join(map(str, self.objects)) or "no object at all",
            )
        mask: Mask = self.masks[self.objects.index(object)]
        return mask

    def number(self, object: ObjectId) -> int:
        """The number of an object in pictures, which decides its colour."""
        known = self.numbers.get(object)
        if known is not None:
            return known
        return object if isinstance(object, int) else self.objects.index(object) + 1

    @property
    def segments(self) -> tuple[Segment, ...]:
        """The masks run-length encoded, with their scores; ids that are text are labels."""
        coded = zip(self.object_results, self.rles, self.scores, strict=True)
        return tuple(
            Segment(
                rle,
                label=obj.name if isinstance(obj.name, str) else None,
                score=float(score),
                object_id=self.number(obj.name),
            )
            for obj, rle, score in coded
        )

    def segmented_image(self, label: Labels = None, *, all: bool = True) -> SegmentedImage:
        """The frame with its objects, as `samgraph.formats` takes it.

        Without `all`, only the objects that are visible.
        """
        image = SegmentedImage(self.name, self.size_hw, self.segments, self.image, self.index)
        if isinstance(label, str):
            image = image.labelled(label)
        elif label is not None:
            image = with_labels(image, label, range(len(self)))
        visible = tuple(segment for segment in image.segments if all or segment.area)
        return replace(image, segments=visible)

    @property
    def has_pixels(self) -> bool:
        """Whether the frame itself is known."""
        return self.image is not None or self.source is not None

    def drawn(self, image: Rgb | None = None) -> Rgb:
        """The frame with its masks over it; `image` where the result does not hold it."""
        under = self.read_pixels() if image is None else image
        if under is None:
            raise OptionError(
                f"frame {self.index} was not kept with its result", hint="track(images=True)"
            )
        return overlay(under, self.masks, object_ids=[self.number(name) for name in self.objects])

    def read_pixels(self) -> Rgb | None:
        """The frame itself, read again if it was not kept; None where that cannot be."""
        if self.image is not None or self.source is None:
            return self.image
        return self.source.frame(self.index)

    def _downloaded_masks(self, images: DeviceImages) -> Mask:
        """The masks enlarged where their logits are, and downloaded as bits."""
        masks = np.zeros((len(self), *self.size_hw), np.bool_)
        logits, rows = [], []
        for row, (obj, is_there) in enumerate(zip(self.object_results, self.present, strict=True)):
            if obj.rle is not None:
                masks[row] = run_lengths.decode(obj.rle)
            elif obj.logits is not None and is_there:
                logits.append(obj.logits[None])
                rows.append(row)
        if logits:
            joined = self.buffers.concat(logits)
            masks[rows] = images.masks(joined, self.size_hw, self.display.mask_threshold)
        return masks

    def _numbers(self, values: Sequence[Buffer]) -> Floats:
        if not values:
            return np.zeros(0, np.float32)
        return self.buffers.download(self.buffers.concat(values))

    def _low(self, logits: Buffer) -> Floats:
        return without_holes(self.buffers.download(logits), self.display.fill_holes)


def without_overlaps(logits: Floats) -> Floats:
    """Mask logits [N, ..., H, W] of which at most one per pixel is positive; ties go to the first.

    Where masks overlap, the one with the highest logit keeps the pixel.
    """
    if len(logits) < 2:
        return logits
    winner = logits.argmax(axis=0)
    indices = np.arange(len(logits)).reshape(-1, *(1,) * (logits.ndim - 1))
    return np.where(winner == indices, logits, np.minimum(logits, np.float32(LOSING_LOGIT)))

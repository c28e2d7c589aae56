"""The masks of a prompt.

result = image.predict(points=[(500, 375)])
print(result)                       # 3 masks, 1800x1200, best 0.97
result.best.masks[0]                # bool [H, W]
result.save("out.png"); result.save("out.png", "cutout"); result.save("out.json")
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import SupportsIndex, TypeAlias

import numpy as np
from numpy.typing import NDArray

from samgraph.formats.segment import Segment
from samgraph.media.image.preprocess import upscale_logits, upscale_masks
from samgraph.media.mask import rle
from samgraph.media.mask.geometry import drop_specks, fill_holes, mask_areas, masks_to_boxes, smooth
from samgraph.predict.image.decoding import MaskPredictions
from samgraph.predict.output import Labels, Picture, Segmentation
from samgraph.untrusted.arguments import number, whole

Floats: TypeAlias = NDArray[np.float32]
Masks: TypeAlias = NDArray[np.bool_]
Index: TypeAlias = "SupportsIndex | slice | NDArray[np.bool_] | NDArray[np.integer] | list[int]"

# The reference clamps logits to this before they are used as a mask prompt.
LOGIT_LIMIT = 32.0


@dataclass(frozen=True, slots=True)
class CleanOptions:
    """What `Result.clean` does to masks; 0 for nothing.

    Args:
        fill_holes: Fill holes of at most so many pixels.
        drop_specks: Remove islands of at most so many pixels; the largest component stays.
        smooth: The radius of a majority vote, in pixels.
    """

    fill_holes: int = 0
    drop_specks: int = 0
    smooth: int = 0

    def __post_init__(self) -> None:
        for name in ("fill_holes", "drop_specks", "smooth"):
            whole(name, getattr(self, name))


class Result(Segmentation):
    """Masks with their scores: three per prompt, or one.

    A result is a sequence of masks: `result[i]` is a result with one mask. `prompts` [n] is the
    index of the prompt of each mask. Masks are upscaled to the size of the image on first access.
    """

    def __init__(
        self,
        picture: Picture,
        raw_logits: Floats,
        scores: Floats,
        stability: Floats,
        prompts: NDArray[np.int64],
        *,
        threshold: float = 0.0,
        masks: Masks | None = None,
        names: tuple[str | None, ...] = (),
    ) -> None:
        self.picture, self.scores, self.stability = picture, scores, stability
        self.prompts, self.threshold = prompts, threshold
        self._raw, self._masks = raw_logits, masks
        self._names = names or (None,) * len(scores)
        self._segments: tuple[Segment, ...] | None = None

    @classmethod
    def of(cls, predictions: MaskPredictions, picture: Picture, threshold: float = 0.0) -> "Result":
        """The masks of N prompts, M per prompt, as N * M masks.

        Raises:
            OptionError: The threshold is not a number.
        """
        threshold = number("threshold", threshold)
        count, each = predictions.scores.shape
        prompts = np.repeat(np.arange(count), each)
        logits = predictions.logits.reshape(-1, *predictions.logits.shape[2:])
        scores, stability = predictions.scores.reshape(-1), predictions.stability.reshape(-1)
        return cls(picture, logits, scores, stability, prompts, threshold=threshold)

    @classmethod
    def joined(cls, results: Sequence["Result"]) -> "Result":
        """The masks of several results on one image, whose prompts are counted on."""
        first, start = results[0], 0
        prompts = []
        for result in results:
            _, own = np.unique(result.prompts, return_inverse=True)
            prompts.append(own + start)
            start += int(own.max(initial=-1)) + 1
        return cls(
            first.picture,
            np.concatenate([result._raw for result in results]),
            np.concatenate([result.scores for result in results]),
            np.concatenate([result.stability for result in results]),
            np.concatenate(prompts),
            threshold=first.threshold,
            names=tuple(name for result in results for name in result._names),
        )

    def __len__(self) -> int:
        return len(self.scores)

    def __getitem__(self, index: Index) -> "Result":
        return self._take(np.atleast_1d(np.arange(len(self))[index]))

    def __iter__(self) -> Iterator["Result"]:
        return (self._take(np.array([i])) for i in range(len(self)))

    def __repr__(self) -> str:
        count = len(np.unique(self.prompts))
        of = f" of {count} prompts" if count > 1 else ""
        best = f", best {self.scores.max():.2f}" if len(self) else ""
        plural = "" if len(self) == 1 else "s"
        return f"{len(self)} mask{plural}{of}, {self.picture.size_text}{best}"

    @property
    def masks(self) -> Masks:
        """The masks at the size of the image, bool [n, H, W]."""
        if self._masks is None:
            self._masks = upscale_masks(self._raw, self.size_hw, self.threshold)
        return self._masks

    @property
    def mask(self) -> Masks:
        """The best of all the masks, bool [H, W]."""
        mask: Masks = self[int(self.scores.argmax())].masks[0]
        return mask

    @property
    def logits(self) -> Floats:
        """Low-resolution logits within +-32, [n, L, L], which can be used as a mask prompt."""
        return self._raw.clip(-LOGIT_LIMIT, LOGIT_LIMIT)

    @property
    def boxes(self) -> NDArray[np.int64]:
        """The tight box of each mask, [n, 4]: left, top, right, bottom; 0 for an empty mask."""
        return masks_to_boxes(self.masks)

    @property
    def areas(self) -> NDArray[np.int64]:
        """The pixels in each mask, [n]."""
        return mask_areas(self.masks)

    @property
    def best(self) -> "Result":
        """The mask of each prompt with the highest predicted IoU."""
        order = np.lexsort((-self.scores, self.prompts))
        _, first = np.unique(self.prompts[order], return_index=True)
        return self._take(order[first])

    @property
    def segments(self) -> tuple[Segment, ...]:
        """The masks run-length encoded, each with its score."""
        if self._segments is None:
            codes = rle.encode_many(self.masks)
            scored = zip(codes, self._names, self.scores, self.stability, strict=True)
            self._segments = tuple(
                Segment(code, label=name, score=float(score), stability=float(stability))
                for code, name, score, stability in scored
            )
        return self._segments

    @property
    def objects_of_segments(self) -> Sequence[int]:
        """Which of the prompts each mask is of, counted from 0."""
        _, objects = np.unique(self.prompts, return_inverse=True)
        return [int(index) for index in objects]

    def with_labels(self, labels: Labels) -> "Result":
        """The same with a name for all objects, or one for each prompt, in written files.

        Raises:
            OptionError: There is not one label for each prompt.
        """
        image = self.segmented_image(labels)
        return self._copy(
            self._raw, self.scores, self.stability, self.prompts, self._masks,
            tuple(segment.label for segment in image.segments),
        )  # fmt: skip

    @property
    def chosen(self) -> tuple[Segment, ...]:
        """The best mask of each prompt."""
        return self.best.segments

    def of_prompt(self, number: int) -> "Result":
        """The masks of one of several prompts."""
        return self._take(np.flatnonzero(self.prompts == range(self.prompts.max() + 1)[number]))

    def full_logits(self) -> Floats:
        """The logits at the size of the image, not clamped, [n, H, W]."""
        return upscale_logits(self._raw, self.size_hw)

    def fill_holes(self, max_area: int) -> "Result":
        """Masks with holes of up to `max_area` pixels filled."""
        most = whole("max_area", max_area)
        return self._changed(lambda mask: fill_holes(mask, most))

    def drop_specks(self, max_area: int) -> "Result":
        """Masks without islands of up to `max_area` pixels; the largest component stays."""
        most = whole("max_area", max_area)
        return self._changed(lambda mask: drop_specks(mask, most))

    def smooth(self, radius: int = 2) -> "Result":
        """Masks smoothed by a majority vote in squares of 2 * radius + 1 pixels."""
        pixels = whole("radius", radius)
        return self._changed(lambda mask: smooth(mask, pixels))

    def clean(self, options: CleanOptions) -> "Result":
        """Holes filled, islands removed and edges smoothed, in this order."""
        result = self.fill_holes(options.fill_holes) if options.fill_holes else self
        result = result.drop_specks(options.drop_specks) if options.drop_specks else result
        return result.smooth(options.smooth) if options.smooth else result

    def _changed(self, change: Callable[[Masks], Masks]) -> "Result":
        masks = np.stack([change(mask) for mask in self.masks]) if len(self) else self.masks
        return self._copy(self._raw, self.scores, self.stability, self.prompts, masks, self._names)

    def _take(self, index: NDArray[np.int64]) -> "Result":
        masks = None if self._masks is None else self._masks[index]
        return self._copy(
            self._raw[index],
            self.scores[index],
            self.stability[index],
            self.prompts[index],
            masks,
            tuple(self._names[i] for i in index),
        )

    def _copy(
        self,
        raw: Floats,
        scores: Floats,
        stability: Floats,
        prompts: NDArray[np.int64],
        masks: Masks | None,
        names: tuple[str | None, ...],
    ) -> "Result":
        return Result(
            self.picture,
            raw,
            scores,
            stability,
            prompts,
            threshold=self.threshold,
            masks=masks,
            names=names,
        )

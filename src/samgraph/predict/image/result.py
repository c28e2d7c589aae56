"""The masks that answer a prompt.

result = image.predict(points=[(500, 375)])
print(result)                       # 3 masks, 1800x1200, best 0.97
result.best.masks[0]                # bool [H, W]
result.save("out.png"); result.save("out.png", "cutout"); result.save("out.json")
"""

import math
from collections.abc import Callable, Iterator
from numbers import Real
from typing import SupportsIndex, TypeAlias

import numpy as np
from numpy.typing import NDArray

from samgraph.errors import OptionError
from samgraph.formats.segment import Segment
from samgraph.media.image.preprocess import upscale_logits, upscale_masks
from samgraph.media.mask import rle
from samgraph.media.mask.geometry import drop_specks, fill_holes, mask_areas, masks_to_boxes, smooth
from samgraph.predict.image.decoding import Answers
from samgraph.predict.output import Segmentation
from samgraph.predict.picture import Picture

Floats: TypeAlias = NDArray[np.float32]
Masks: TypeAlias = NDArray[np.bool_]
Index: TypeAlias = "SupportsIndex | slice | NDArray[np.bool_] | NDArray[np.integer] | list[int]"

# What the reference clamps logits to before they are given back as a prompt.
LOGIT_LIMIT = 32.0


class Result(Segmentation):
    """Masks with their scores: three readings of each prompt, or one.

    A result is a list of masks: it has a length, and `result[i]` is a result of one mask. `prompts`
    says which prompt each mask answers. Masks at the size of the image are made when asked for.
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
    ) -> None:
        self.picture, self.scores, self.stability = picture, scores, stability
        self.prompts, self.threshold = prompts, threshold
        self._raw, self._masks = raw_logits, masks
        self._segments: tuple[Segment, ...] | None = None

    @classmethod
    def of(cls, answers: Answers, picture: Picture, threshold: float = 0.0) -> "Result":
        """The answers to N prompts, M masks each, as N * M masks.

        Raises:
            OptionError: The threshold is not a number.
        """
        if not isinstance(threshold, Real) or not math.isfinite(threshold):
            raise OptionError("a threshold is a number", got=repr(threshold))
        count, each = answers.scores.shape
        prompts = np.repeat(np.arange(count), each)
        logits = answers.logits.reshape(-1, *answers.logits.shape[2:])
        scores, stability = answers.scores.reshape(-1), answers.stability.reshape(-1)
        return cls(picture, logits, scores, stability, prompts, threshold=float(threshold))

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
        """Low-resolution logits within +-32, [n, L, L], fit to be given back as `mask`."""
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
        """The mask of each prompt that the model thinks best."""
        order = np.lexsort((-self.scores, self.prompts))
        _, first = np.unique(self.prompts[order], return_index=True)
        return self._take(order[first])

    @property
    def segments(self) -> tuple[Segment, ...]:
        """The masks run-length encoded, each with its score."""
        if self._segments is None:
            scored = zip(rle.encode_many(self.masks), self.scores, self.stability, strict=True)
            self._segments = tuple(
                Segment(code, score=float(score), stability=float(steady))
                for code, score, steady in scored
            )
        return self._segments

    @property
    def chosen(self) -> tuple[Segment, ...]:
        """The best mask of each prompt."""
        return self.best.segments

    def of_prompt(self, number: int) -> "Result":
        """The masks that answer one of several prompts."""
        return self._take(np.flatnonzero(self.prompts == range(self.prompts.max() + 1)[number]))

    def full_logits(self) -> Floats:
        """The logits at the size of the image, not clamped, [n, H, W]."""
        return upscale_logits(self._raw, self.size_hw)

    def fill_holes(self, max_area: int) -> "Result":
        """Masks without holes of up to so many pixels."""
        return self._changed(lambda mask: fill_holes(mask, max_area))

    def drop_specks(self, max_area: int) -> "Result":
        """Masks without loose pieces of up to so many pixels; the largest piece stays."""
        return self._changed(lambda mask: drop_specks(mask, max_area))

    def smooth(self, radius: int = 2) -> "Result":
        """Masks whose every pixel is what most of those around it are."""
        return self._changed(lambda mask: smooth(mask, radius))

    def _changed(self, change: Callable[[Masks], Masks]) -> "Result":
        masks = np.stack([change(mask) for mask in self.masks]) if len(self) else self.masks
        return self._copy(self._raw, self.scores, self.stability, self.prompts, masks)

    def _take(self, places: NDArray[np.int64]) -> "Result":
        masks = None if self._masks is None else self._masks[places]
        return self._copy(
            self._raw[places],
            self.scores[places],
            self.stability[places],
            self.prompts[places],
            masks,
        )

    def _copy(
        self,
        raw: Floats,
        scores: Floats,
        stability: Floats,
        prompts: NDArray[np.int64],
        masks: Masks | None,
    ) -> "Result":
        return Result(
            self.picture, raw, scores, stability, prompts, threshold=self.threshold, masks=masks
        )

"""How good masks of photographs are: mean IoU from a box, from one click, and after five.

box        the tight box of the object, one mask
1 click    the point farthest from the object's edge; of three masks the one the model prefers
5 clicks   four more, each where the last mask is most wrong (see `clicks.py`)
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from samgraph.errors import ImageError
from samgraph.evaluate.clicks import Click, Mask, corrected
from samgraph.evaluate.davis import IGNORED, box_of, object_labels, region_similarity
from samgraph.predict.image.encoded import EncodedImage
from samgraph.predict.image.result import Result

CLICKS = 5


@dataclass(frozen=True, slots=True)
class Overlaps:
    """IoU of one object, or the mean over several, by the prompt that gave the mask."""

    box: float
    one_click: float
    five_clicks: float

    @classmethod
    def mean(cls, figures: Sequence["Overlaps"]) -> "Overlaps":
        """The mean over objects."""
        names = cls.__slots__
        return cls(*(float(np.mean([getattr(item, name) for item in figures])) for name in names))

    def by_prompt(self) -> dict[str, float]:
        """The figures under the names that people read."""
        return dict(zip(("box", "1 click", "5 clicks"), asdict(self).values(), strict=True))


def image_figures(image: EncodedImage, labels: NDArray[Any]) -> dict[int, Overlaps]:
    """The figures of every object of a label map, [H, W] of the image's size.

    0 is background and 255 is not counted, neither for nor against; in a map of 0 and 255 alone,
    255 is the object.

    Raises:
        ImageError: The map has another size, or no object.
    """
    if labels.shape != image.size_hw:
        raise ImageError(
            f"`{image.name}` and its mask differ in size",
            got=f"a mask of {labels.shape[1]}x{labels.shape[0]}",
            expected=image.picture.size_text,
        )
    numbers, ignore = object_labels(labels), labels == IGNORED
    if not numbers and ignore.any():
        numbers, ignore = [IGNORED], np.zeros_like(ignore)
    if not numbers:
        raise ImageError(f"the mask of `{image.name}` has no object")
    return {number: _object_figures(image, labels == number, ignore) for number in numbers}


def _object_figures(image: EncodedImage, truth: Mask, ignore: Mask) -> Overlaps:
    boxed = image.predict(box=box_of(truth), multimask=False)
    clicked = corrected(_Conversation(image).answer, truth, CLICKS, ignore)
    masks = (boxed.mask, clicked[0], clicked[-1])
    return Overlaps(*(region_similarity(truth, mask & ~ignore) for mask in masks))


class _Conversation:
    """Clicks in, masks out; each answer is given back with the next click."""

    def __init__(self, image: EncodedImage) -> None:
        self._image = image
        self._last: Result | None = None

    def answer(self, clicks: list[Click]) -> Mask:
        self._last = self._image.predict(
            points=[click.point for click in clicks],
            labels=[click.label for click in clicks],
            mask=self._last,
            multimask=len(clicks) == 1,
        ).best
        return self._last.mask

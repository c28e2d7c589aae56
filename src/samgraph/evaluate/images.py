"""Evaluation on images: mean IoU from a box, from one click, and after five.

box        the tight box of the object, one mask
1 click    the point farthest from the object's edge; of three masks the best by predicted IoU
5 clicks   four more, each in the largest error of the last mask (see `clicks.py`)
"""

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from samgraph.errors import ImageError
from samgraph.evaluate.clicks import Click, Mask, corrected
from samgraph.evaluate.davis import IGNORED, box_of, object_labels, region_similarity
from samgraph.predict.image.encoded import EncodedImage
from samgraph.predict.image.result import Result
from samgraph.untrusted.text import shown

CLICKS = 5
IMAGE_FOLDERS = ("images", "JPEGImages")
MASK_FOLDERS = ("masks", "SegmentationObject", "Annotations")
SUFFIXES = (".jpg", ".jpeg", ".png", ".webp")


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
        """The figures by the names of their prompts."""
        return dict(zip(("box", "1 click", "5 clicks"), asdict(self).values(), strict=True))


def find_pairs(folder: Path, masks: Path | None = None) -> list[tuple[Path, Path]]:
    """Every photograph with its mask, ordered by the masks' names.

    Raises:
        ImageError: A folder is missing, or a mask has no photograph.
    """
    pictures = next((folder / n for n in IMAGE_FOLDERS if os.path.isdir(folder / n)), folder)
    if masks is None:
        found = (folder / name for name in MASK_FOLDERS if os.path.isdir(folder / name))
        masks = next(found, folder / "masks")
    for needed in (pictures, masks):
        if not os.path.isdir(needed):
            raise ImageError(
                f"`{shown(str(needed))}` does not exist",
                expected="photographs in `images/`, masks in `masks/`",
            )
    pairs = [(_photograph(pictures, mask), mask) for mask in sorted(masks.glob("*.png"))]
    if not pairs:
        raise ImageError(f"there is no mask in `{masks}`", expected="files such as `name.png`")
    return pairs


def _photograph(pictures: Path, mask: Path) -> Path:
    for suffix in SUFFIXES:
        for spelling in (suffix, suffix.upper()):
            path = pictures / f"{mask.stem}{spelling}"
            if os.path.isfile(path) and path != mask:
                return path
    raise ImageError(
        f"`{mask}` has no photograph",
        expected=f"`{pictures / mask.stem}` with {', '.join(SUFFIXES)}",
    )


def image_figures(image: EncodedImage, labels: NDArray[Any]) -> dict[int, Overlaps]:
    """The figures of every object of a label map, [H, W] of the image's size.

    0 is background and 255 is ignored; in a map of 0 and 255 alone, 255 is the object.

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
    clicked = corrected(_Clicker(image).predict, truth, CLICKS, ignore)
    masks = (boxed.mask, clicked[0], clicked[-1])
    return Overlaps(*(region_similarity(truth, mask & ~ignore) for mask in masks))


class _Clicker:
    """Predicts from clicks, each time with the last result as mask prompt."""

    def __init__(self, image: EncodedImage) -> None:
        self._image = image
        self._last: Result | None = None

    def predict(self, clicks: list[Click]) -> Mask:
        self._last = self._image.predict(
            points=[click.point for click in clicks],
            labels=[click.label for click in clicks],
            mask=self._last,
            multimask=len(clicks) == 1,
        ).best
        return self._last.mask

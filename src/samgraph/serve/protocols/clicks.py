"""What every annotation tool asks for: clicks and a box on one object, in pixels of the image."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from samgraph.errors import PromptError
from samgraph.media.mask.polygons import Ring, join_rings, mask_to_polygons, ring_area, simplify
from samgraph.predict.image.encoded import EncodedImage
from samgraph.predict.image.result import Floats, Result

Box = tuple[float, float, float, float]
Mask = NDArray[np.bool_]

# Parts and holes that are smaller than this fraction of the largest part get no outline.
SMALLEST_PART = 0.05


@dataclass(frozen=True, slots=True)
class Clicks:
    """Points (x, y) with labels, 1 inside and 0 outside, and a box: left, top, right, bottom."""

    points: tuple[tuple[float, float], ...] = ()
    labels: tuple[int, ...] = ()
    box: Box | None = None

    @property
    def is_empty(self) -> bool:
        """Whether nothing was asked for."""
        return not self.points and self.box is None

    @property
    def is_ambiguous(self) -> bool:
        """Whether it is a single click, which may mean a part or the whole."""
        return len(self.points) == 1 and self.box is None

    def scaled(self, size_hw: tuple[int, int], whole: float) -> "Clicks":
        """Pixels, where coordinates were fractions of the image times `whole`: 1, or 100."""
        across, down = size_hw[1] / whole, size_hw[0] / whole
        points = tuple((x * across, y * down) for x, y in self.points)
        box = self.box
        if box is not None:
            box = (box[0] * across, box[1] * down, box[2] * across, box[3] * down)
        return replace(self, points=points, box=box)

    def within(self, size_hw: tuple[int, int]) -> "Clicks":
        """The same with the box clipped to the image, since people draw across its edges."""
        if self.box is None:
            return self
        height, width = size_hw
        left, right = sorted(self.box[0::2])
        top, bottom = sorted(self.box[1::2])
        box = (max(left, 0.0), max(top, 0.0), min(right, float(width)), min(bottom, float(height)))
        return replace(self, box=box if box[0] < box[2] and box[1] < box[3] else self.box)

    def prompts(self, size_hw: tuple[int, int]) -> dict[str, object]:
        """The arguments of `EncodedImage.predict` and `Video.add`.

        Raises:
            PromptError: There is neither a click nor a box.
        """
        if self.is_empty:
            raise PromptError("there is no prompt", expected="points or a box")
        given: dict[str, object] = {}
        if self.points:
            given |= {"points": list(self.points), "labels": list(self.labels)}
        if self.box is not None:
            given["box"] = self.within(size_hw).box
        return given


def segment(
    image: EncodedImage,
    clicks: Clicks,
    *,
    multimask: bool | None = None,
    logits: Floats | None = None,
) -> Result:
    """The best mask of the clicks, as a result of one mask.

    Args:
        image: The image.
        clicks: In its pixels.
        multimask: Whether to choose among three candidates; by default, for a single click.
        logits: An earlier answer to improve, [L, L].

    Raises:
        PromptError: There is no prompt, or it is outside the image.
    """
    several = clicks.is_ambiguous if multimask is None else multimask
    prompts: dict[str, Any] = clicks.prompts(image.size_hw)
    return image.predict(**prompts, mask=logits, multimask=several).best


def outlines(mask: Mask, epsilon: float = 0.0) -> list[Ring]:
    """The outlines of a mask, [K, 2] each, the largest part first, without specks.

    A hole is part of its outline, by a slit of no width: even-odd filling gives the mask.

    Args:
        mask: bool [H, W].
        epsilon: How far an outline may be from the mask's edge, as a fraction of its length.
    """
    parts = sorted(mask_to_polygons(mask), key=lambda part: -ring_area(part.outer))
    rings = []
    for part in parts:
        if ring_area(part.outer) < SMALLEST_PART * ring_area(parts[0].outer):
            break
        least = SMALLEST_PART * ring_area(part.outer)
        kept = [part.outer, *(hole for hole in part.holes if -ring_area(hole) >= least)]
        tolerance = epsilon * _length(part.outer)
        rings.append(join_rings([simplify(ring, tolerance) for ring in kept]))
    return rings


def bounding_box(mask: Mask) -> tuple[int, int, int, int] | None:
    """Left, top, right and bottom of a mask, right and bottom exclusive; None if it is empty."""
    rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
    if not len(rows):
        return None
    return int(columns[0]), int(rows[0]), int(columns[-1]) + 1, int(rows[-1]) + 1


def _length(ring: NDArray[np.float64]) -> float:
    return float(np.hypot(*(np.roll(ring, -1, axis=0) - ring).T).sum())

"""Clicks simulated from the true mask, as in the SAM papers.

    first    the point of the object farthest from its edge
    next     the point farthest from the edge of the error region: positive where the object was
             missed, negative where the mask is false; the image's border counts as an edge

After the first click, the low-resolution logits of the last result are the mask prompt.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from samgraph.errors import PromptError

Mask: TypeAlias = NDArray[np.bool_]
EXACT_SIDE = 640


@dataclass(frozen=True, slots=True)
class Click:
    """A point in pixels of the image, and its label: 1 positive, 0 negative."""

    x: float
    y: float
    label: int

    @property
    def point(self) -> tuple[float, float]:
        """The coordinates (x, y)."""
        return self.x, self.y


# From all clicks so far to the mask.
Predict: TypeAlias = Callable[[list[Click]], Mask]


def first_click(mask: Mask) -> Click:
    """A click on the point of `mask` farthest from its edge.

    Raises:
        PromptError: The mask is empty.
    """
    click = next_click(mask, np.zeros_like(mask))
    if click is None:
        raise PromptError("an empty mask has no point to click on")
    return click


def next_click(truth: Mask, found: Mask, ignore: Mask | None = None) -> Click | None:
    """The click that corrects the largest error of `found`; None where there is none.

    Pixels of `ignore` are never errors. Of points equally deep, the first in reading order; of
    errors equally deep, false positives come first.
    """
    counted = True if ignore is None else ~ignore
    missed, extra = truth & ~found & counted, found & ~truth & counted
    points = [_deepest(missed), _deepest(extra)]
    if points == [None, None]:
        return None
    (depth, y, x), (extra_depth, extra_y, extra_x) = (point or (0, 0, 0) for point in points)
    if depth > extra_depth:
        return Click(x + 0.5, y + 0.5, 1)
    return Click(extra_x + 0.5, extra_y + 0.5, 0)


def corrected(predict: Predict, truth: Mask, count: int, ignore: Mask | None = None) -> list[Mask]:
    """The masks after 1, 2, ... `count` clicks; once there is no error, the last mask is kept."""
    clicks = [first_click(truth if ignore is None else truth & ~ignore)]
    masks = [predict(clicks)]
    while len(masks) < count:
        click = next_click(truth, masks[-1], ignore)
        if click is None:
            return masks + masks[-1:] * (count - len(masks))
        clicks.append(click)
        masks.append(predict(clicks))
    return masks


def squared_depths(mask: Mask) -> NDArray[np.int32]:
    """The squared distance of every pixel to the nearest pixel outside the mask, [H, W].

    Pixels beyond the border are outside. Distances within each column come first; then the minimum
    over columns to the left and right, as far as the largest distance so far.
    """
    height, width = mask.shape
    rows = np.arange(height, dtype=np.int32)[:, None]
    above = np.maximum.accumulate(np.where(mask, np.int32(-1), rows), axis=0)
    below = np.minimum.accumulate(np.where(mask, np.int32(height), rows)[::-1], axis=0)[::-1]
    column = np.minimum(rows - above, below - rows) ** 2
    x = np.arange(width, dtype=np.int32)
    depths: NDArray[np.int32] = np.minimum(column, np.minimum(x + 1, width - x) ** 2)
    for step in range(1, width):
        if step * step >= depths.max():
            break
        column += 2 * step - 1  # now the squares of `step` and of the distance in the column
        np.minimum(depths[:, step:], column[:, :-step], out=depths[:, step:])
        np.minimum(depths[:, :-step], column[:, step:], out=depths[:, :-step])
    return depths


def _deepest(mask: Mask) -> tuple[int, int, int] | None:
    """Squared depth, row and column of the deepest pixel; None for an empty mask.

    A region wider or higher than `EXACT_SIDE` is measured in blocks of a few pixels, if any block
    is entirely set, and the centre of the deepest block is returned.
    """
    rows, columns = np.flatnonzero(mask.any(1)), np.flatnonzero(mask.any(0))
    if not len(rows):
        return None
    top, left = int(rows[0]), int(columns[0])
    region = mask[top : rows[-1] + 1, left : columns[-1] + 1]
    side = -(-max(region.shape) // EXACT_SIDE)
    blocks = _whole_blocks(region, side)
    if not blocks.any():
        side, blocks = 1, region
    depths = squared_depths(blocks)
    y, x = divmod(int(depths.argmax()), depths.shape[1])
    middle = side // 2
    return int(depths[y, x]) * side**2, top + y * side + middle, left + x * side + middle


def _whole_blocks(mask: Mask, side: int) -> Mask:
    """Which blocks of `side` x `side` pixels are entirely set; incomplete blocks are dropped."""
    height, width = (length // side for length in mask.shape)
    cut = mask[: height * side, : width * side]
    return np.asarray(cut.reshape(height, side, width, side).all(axis=(1, 3)))

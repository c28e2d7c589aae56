"""The prompts of automatic masks: grids of points, on the image and on crops of it."""

import math
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

Grid = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Crop:
    """A part of the image in pixels; `layer` is how often the image was halved, 0 for all of it."""

    left: int
    top: int
    right: int
    bottom: int
    layer: int = 0

    @property
    def size_hw(self) -> tuple[int, int]:
        """Height and width."""
        return self.bottom - self.top, self.right - self.left

    @property
    def box_xyxy(self) -> tuple[int, int, int, int]:
        """Left, top, right, bottom."""
        return self.left, self.top, self.right, self.bottom

    @property
    def area(self) -> int:
        """The number of pixels."""
        height, width = self.size_hw
        return height * width


def point_grid(side: int) -> Grid:
    """The centres of side x side cells of the unit square, row by row: [side**2, 2]."""
    offset = 1 / (2 * side)
    centres = np.linspace(offset, 1 - offset, side)
    x, y = np.meshgrid(centres, centres)
    return np.stack([x, y], axis=-1).reshape(-1, 2)


def layer_grids(side: int, layers: int, downscale: int) -> list[Grid]:
    """A grid for the image and for each layer of crops, coarser by `downscale` per layer."""
    return [point_grid(int(side / downscale**layer)) for layer in range(layers + 1)]


def crops_of(size_hw: tuple[int, int], layers: int, overlap_ratio: float) -> list[Crop]:
    """The whole image; then, in layer i, 2**i x 2**i crops that overlap.

    The overlap of the first layer is a fraction of the short side and halves per layer. Crops are
    ordered column by column, as in the reference.
    """
    height, width = size_hw
    crops = [Crop(0, 0, width, height)]
    for layer in range(1, layers + 1):
        count = 2**layer
        overlap = int(overlap_ratio * min(size_hw) * (2 / count))
        across, down = _crop_length(width, count, overlap), _crop_length(height, count, overlap)
        lefts = [int((across - overlap) * i) for i in range(count)]
        tops = [int((down - overlap) * i) for i in range(count)]
        for left, top in product(lefts, tops):
            right, bottom = min(left + across, width), min(top + down, height)
            crops.append(Crop(left, top, right, bottom, layer))
    return crops


def _crop_length(length: int, count: int, overlap: int) -> int:
    return math.ceil((overlap * (count - 1) + length) / count)

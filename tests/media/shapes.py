"""Masks for the tests: drawn, and by hypothesis strategies."""

from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray

Mask = NDArray[np.bool_]


def picture(*rows: str) -> Mask:
    """A mask from text, `#` for set pixels."""
    return np.array([[letter == "#" for letter in row] for row in rows])


def discs(seed: int, size: int = 256, count: int = 5) -> Mask:
    """Overlapping discs, each flipping what is below it: outlines, holes and islands."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:size, :size]
    mask = np.zeros((size, size), np.bool_)
    for _ in range(count):
        cy, cx, radius = *rng.integers(0, size, 2), rng.integers(3, size // 4)
        mask ^= (y - cy) ** 2 + (x - cx) ** 2 < radius**2
    return mask


def masks(max_side: int = 24) -> st.SearchStrategy[NDArray[Any]]:
    """Any small mask, empty, full and one pixel wide included."""
    return arrays.arrays(np.bool_, arrays.array_shapes(min_dims=2, max_dims=2, max_side=max_side))

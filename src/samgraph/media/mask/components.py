"""Connected components of a mask; filling holes, removing small islands, smoothing edges.

Every row of the mask is a few runs of set pixels; runs that touch from one row to the next are
joined by union-find over whole arrays: each root takes the smallest root it touches, paths are
compressed, and the number of roots at least halves in each round.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from samgraph.errors import ImageError, OptionError

Mask = NDArray[np.bool_]
Connectivity = Literal[4, 8]
Value = TypeVar("Value", bound=np.generic)


@dataclass(frozen=True, slots=True)
class _Runs:
    """Runs of set pixels in raster order, as indices into rows padded by one pixel."""

    starts: NDArray[np.int64]
    stops: NDArray[np.int64]
    label: NDArray[np.int64]
    areas: NDArray[np.int64]


def connected_components(
    mask: Mask, connectivity: Connectivity = 8
) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """The connected components of a mask: labels [H, W], and the area of each label.

    Label 0 is the background; components are numbered in raster order of their first pixel.
    `areas[label]` is in pixels; `areas[0]` is the background's.
    """
    runs = _labelled_runs(_check_mask(mask), connectivity)
    labels = _paint(mask.shape, runs, (runs.label + 1).astype(np.int32))
    background = mask.size - int(runs.areas.sum())
    return labels, np.concatenate([[background], runs.areas])


def fill_holes(mask: Mask, max_area: int, connectivity: Connectivity = 8) -> Mask:
    """Set every component of the background of at most `max_area` pixels.

    As in the reference, components that touch the border of the image are filled too.
    """
    return mask | _small_components(~_check_mask(mask), max_area, connectivity)


def drop_specks(mask: Mask, max_area: int, connectivity: Connectivity = 8) -> Mask:
    """Clear every component of at most `max_area` pixels; if all are, keep the largest."""
    runs = _labelled_runs(_check_mask(mask), connectivity)
    small = runs.areas <= max_area
    if small.size and small.all():
        small[np.argmax(runs.areas)] = False
    return mask & ~_paint(mask.shape, runs, small[runs.label])


def smooth(mask: Mask, radius: int) -> Mask:
    """Majority filter: each pixel becomes what most of the `2 * radius + 1` square around it is.

    At the border only pixels inside the image count; a tie changes nothing.
    """
    _check_mask(mask)
    if not isinstance(radius, int | np.integer):
        raise OptionError("a radius is a whole number of pixels", got=radius)
    if radius < 0:
        raise OptionError("a radius is not negative", got=radius)
    if radius == 0:
        return mask.copy()
    twice = 2 * _window_sum(_window_sum(mask.astype(np.int32), radius).T, radius).T
    rows, columns = (_window_sum(np.ones((n, 1), np.int32), radius) for n in mask.shape)
    votes = rows * columns.T
    return np.asarray((twice > votes) | (mask & (twice == votes)))


def _window_sum(values: NDArray[np.int32], radius: int) -> NDArray[np.int32]:
    """The sum over `radius` rows above and below each row, clipped at the border."""
    length = len(values)
    total = np.zeros((length + 1, values.shape[1]), np.int32)
    np.cumsum(values, axis=0, out=total[1:])
    row = np.arange(length)
    return total[np.minimum(row + radius + 1, length)] - total[np.maximum(row - radius, 0)]


def _small_components(mask: Mask, max_area: int, connectivity: Connectivity) -> Mask:
    """The components of a mask of at most `max_area` pixels."""
    runs = _labelled_runs(mask, connectivity)
    return _paint(mask.shape, runs, (runs.areas <= max_area)[runs.label])


def _labelled_runs(mask: Mask, connectivity: Connectivity) -> _Runs:
    """The runs of a mask, each with the index of its component, and the components' areas."""
    if connectivity not in (4, 8):
        raise OptionError("unknown connectivity", got=connectivity, expected="4 or 8")
    height, width = mask.shape
    flat = np.zeros((height, width + 1), np.bool_)
    flat[:, :width] = mask
    edges = np.flatnonzero(flat.ravel()[1:] != flat.ravel()[:-1]) + 1
    if mask[0, 0]:
        edges = np.concatenate([[0], edges])
    starts, stops = edges[0::2], edges[1::2]
    upper, lower = _touching(starts, stops, width + 1, connectivity == 8)
    root = _join(len(starts), upper, lower)
    is_root = root == np.arange(len(root))
    label = (np.cumsum(is_root) - 1)[root]
    areas = np.bincount(label, weights=stops - starts, minlength=int(is_root.sum()))
    return _Runs(starts, stops, label, areas.astype(np.int64))


def _touching(
    starts: NDArray[np.int64], stops: NDArray[np.int64], stride: int, corners: bool
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Pairs of runs in neighbouring rows that share an edge, or also a corner."""
    return _meeting((starts + stride, stops + stride), (starts, stops), corners)


def _meeting(
    moved: tuple[NDArray[np.int64], NDArray[np.int64]],
    fixed: tuple[NDArray[np.int64], NDArray[np.int64]],
    corners: bool,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Pairs of runs, given by starts and stops, that overlap, or where corners count, adjoin."""
    first = np.searchsorted(fixed[1], moved[0], side="left" if corners else "right")
    last = np.searchsorted(fixed[0], moved[1], side="right" if corners else "left")
    many = np.maximum(last - first, 0)
    one = np.repeat(np.arange(len(moved[0])), many)
    step = np.arange(len(one)) - np.repeat(np.cumsum(many) - many, many)
    return one, first[one] + step


def _join(count: int, left: NDArray[np.int64], right: NDArray[np.int64]) -> NDArray[np.int64]:
    """Union-find over `count` elements: the root (smallest index) of each, given pairs to join."""
    root = np.arange(count)
    while len(left):
        a, b = root[left], root[right]
        apart = a != b
        left, right, a, b = left[apart], right[apart], a[apart], b[apart]
        np.minimum.at(root, np.maximum(a, b), np.minimum(a, b))
        while not np.array_equal(root, flatter := root[root]):
            root = flatter
    return root


def _paint(shape: tuple[int, ...], runs: _Runs, values: NDArray[Value]) -> NDArray[Value]:
    """An image of zeros in which each run is filled with its value."""
    height, width = shape
    size = height * (width + 1)
    edges = np.stack([runs.starts, runs.stops], axis=1).ravel()
    lengths = np.diff(edges, prepend=0, append=size)
    colours = np.zeros(len(lengths), values.dtype)
    colours[1::2] = values
    flat = np.repeat(colours, lengths).reshape(height, width + 1)
    return np.ascontiguousarray(flat[:, :width])


def _check_mask(mask: Mask) -> Mask:
    if mask.ndim != 2 or mask.dtype != np.bool_ or not mask.size:
        raise ImageError(
            "this is not a mask", got=f"{mask.dtype}{list(mask.shape)}", expected="bool[H, W]"
        )
    return mask


def largest_component(volume: Mask) -> Mask:
    """The largest connected component of a volume, bool [Z, H, W]; voxels at a corner touch.

    The first in raster order if several are the largest; nothing if nothing is set.
    """
    if volume.ndim != 3 or volume.dtype != np.bool_:
        got = f"{volume.dtype}{list(volume.shape)}"
        raise ImageError("this is not a mask of a volume", got=got, expected="bool[Z, H, W]")
    if not volume.any():
        return volume.copy()
    runs, stride = [_labelled_runs(mask, 8) for mask in volume], volume.shape[2] + 1
    firsts = np.concatenate([[0], np.cumsum([len(one.areas) for one in runs])])
    pairs = [
        np.stack([upper.label[a], lower.label[b]]) + firsts[[z, z + 1], None]
        for z, (upper, lower) in enumerate(pairwise(runs))
        for shift in (-stride, 0, stride)
        for a, b in [
            _meeting((upper.starts + shift, upper.stops + shift), (lower.starts, lower.stops), True)
        ]
    ]
    left, right = np.unique(np.concatenate([np.zeros((2, 0), np.int64), *pairs], axis=1), axis=1)
    root = _join(int(firsts[-1]), left, right)
    areas = np.bincount(root, weights=np.concatenate([one.areas for one in runs]))
    keeps = root == int(np.argmax(areas))
    return np.stack(
        [
            _paint(mask.shape, one, keeps[firsts[z] + one.label])
            for z, (mask, one) in enumerate(zip(volume, runs, strict=True))
        ]
    )

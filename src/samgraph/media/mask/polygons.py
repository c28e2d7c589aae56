"""Masks to polygons and back.

A contour follows the edges of pixels, clockwise on the screen around set pixels and
counter-clockwise around holes, so that rasterising it gives the mask back exactly. Pixels that
touch only at a corner belong to different polygons.

Every contour alternates between horizontal and vertical edges. The edges are found with numpy, each
end is matched with the start of an edge of the other direction, and the rings are the cycles of
these links.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from samgraph.errors import ImageError, OptionError
from samgraph.media.mask import rle as run_lengths
from samgraph.media.mask.components import Mask, connected_components
from samgraph.media.mask.rle import Rle

Ring = NDArray[np.float64]
CROSSINGS_AT_ONCE = 1 << 20
EDGE_PIXELS = 128  # intersecting an edge with a row takes as long as filling this many pixels
PAIRS_AT_ONCE = 1 << 22
# Corners are clipped to this, so that no product of two coordinates overflows.
FAR = 1e9


@dataclass(frozen=True, slots=True, eq=False)
class Polygon:
    """An outline and its holes: open rings of corners (x, y), [K, 2]."""

    outer: Ring
    holes: tuple[Ring, ...] = ()

    @property
    def rings(self) -> tuple[Ring, ...]:
        """The outline first, then the holes."""
        return (self.outer, *self.holes)


def mask_to_polygons(mask: Mask, tolerance: float = 0.0) -> list[Polygon]:
    """The outlines of a mask, in raster order.

    A tolerance in pixels simplifies them (Douglas-Peucker); a ring that would vanish is kept as it
    is. Zero keeps every corner.
    """
    if not tolerance >= 0:
        raise OptionError("a tolerance is not negative", got=tolerance)
    labels, areas = connected_components(mask, 4)
    outer: list[Ring | None] = [None] * (len(areas) - 1)
    holes: list[list[Ring]] = [[] for _ in outer]
    for corners in _trace(mask):
        (x, y), (next_x, _) = corners[:2]
        # The first edge has the mask on its right: below it going right, above it going left.
        inside = labels[y, x] if next_x > x else labels[y - 1, next_x]
        ring = simplify(corners.astype(np.float64), tolerance)
        if ring_area(corners) > 0:
            outer[inside - 1] = ring
        else:
            holes[inside - 1].append(ring)
    return [
        Polygon(ring, tuple(inner))
        for ring, inner in zip(outer, holes, strict=True)
        if ring is not None
    ]


def polygons_to_mask(
    polygons: Iterable[Polygon | NDArray[np.floating]], size_hw: tuple[int, int]
) -> Mask:
    """The pixels whose centre lies in any of the polygons: bool [H, W].

    Holes and self-intersections follow the even-odd rule within a polygon.

    Raises:
        ImageError: A corner is not a pair of finite numbers.
    """
    out = np.zeros(size_hw, np.bool_)
    for polygon in polygons:
        corners = [_check_ring(ring) for ring in _rings_of(polygon)]
        rows, columns = _extent(np.concatenate(corners), size_hw)
        window = out[rows, columns]
        if window.size:
            window |= _fill([ring - (columns.start, rows.start) for ring in corners], window.shape)
    return out


def polygons_to_rle(
    polygons: Sequence[Polygon | NDArray[np.floating]],
    size_hw: tuple[int, int],
    spend: Callable[[int], None] | None = None,
) -> Rle:
    """The run-length encoding of `polygons_to_mask`; costs time for the polygons' extents alone.

    `spend` is called with that cost beforehand, in pixels, and may raise to refuse it.

    Raises:
        ImageError: A corner is not a pair of finite numbers.
    """
    shapes = [[_check_ring(ring) for ring in _rings_of(one)] for one in polygons]
    extents = [_extent(np.concatenate(shape), size_hw) for shape in shapes]
    top, left, bottom, right = _union(extents)
    if spend is not None:
        spend((bottom - top) * (right - left) + sum(map(_cost, shapes, extents)))
    window = np.zeros((right - left, bottom - top + 1), np.uint8)
    for shape, (rows, columns) in zip(shapes, extents, strict=True):
        part = window[columns.start - left : columns.stop - left]
        part = part[:, rows.start - top : rows.stop - top]
        if part.size:
            corner = columns.start, rows.start
            part |= _fill_columns([ring - corner for ring in shape], part.shape[1], part.shape[0])
    return run_lengths.encode_columns(window, top, left, size_hw)


def ring_area(ring: NDArray[np.generic]) -> float:
    """The signed area of a ring: positive clockwise on the screen, where y points down."""
    x, y = ring[:, 0].astype(np.float64), ring[:, 1].astype(np.float64)
    return float(np.dot(x, np.roll(y, -1)) - np.dot(y, np.roll(x, -1))) / 2


def simplify(ring: Ring, tolerance: float) -> Ring:
    """A ring with fewer corners (Douglas-Peucker); dropped corners are within `tolerance` of it."""
    if tolerance <= 0 or len(ring) <= 4:
        return ring
    far = int(np.argmax(((ring - ring[0]) ** 2).sum(axis=1)))
    keep = np.zeros(len(ring) + 1, np.bool_)
    keep[[0, far]] = True
    closed = np.concatenate([ring, ring[:1]])
    stack = [(0, far), (far, len(ring))]
    while stack:
        first, last = stack.pop()
        if last - first < 2:
            continue
        distance = _distance_to_segment(closed[first + 1 : last], closed[first], closed[last])
        worst = int(np.argmax(distance))
        if distance[worst] > tolerance:
            middle = first + 1 + worst
            keep[middle] = True
            stack += [(first, middle), (middle, last)]
    simpler = ring[keep[:-1]]
    return simpler if len(simpler) > 2 and ring_area(simpler) != 0 else ring


def join_rings(rings: Sequence[Ring]) -> Ring:
    """One ring from several, for formats without holes and parts.

    The rings are joined by slits of zero width, so the even-odd rule fills the same pixels.
    """
    joined = rings[0]
    for ring in rings[1:]:
        here, there = _nearest_corners(joined, ring)
        rolled = np.roll(ring, -there, axis=0)
        joined = np.concatenate(
            [joined[: here + 1], rolled, rolled[:1], joined[here : here + 1], joined[here + 1 :]]
        )
    return joined


def _trace(mask: Mask) -> list[NDArray[np.int64]]:
    """All rings of a mask as corners (x, y), each ring beginning with a horizontal edge."""
    height, width = mask.shape
    level = np.zeros((height + 2, width + 2), np.int8)
    level[1:-1, 1:-1] = mask
    # +1 where the mask begins below the grid line (edge to the right), -1 where it ends (left).
    line_y, x_start, x_stop, _ = _grid_edges((level[1:] - level[:-1])[:, 1:-1], forward=1)
    # Where the mask begins right of the grid line the edge goes up, where it ends, down.
    line_x, y_start, y_stop, _ = _grid_edges((level[:, 1:] - level[:, :-1])[1:-1].T, forward=-1)
    stride = 2 * (width + 2)
    across_from, across_to = line_y * stride + 2 * x_start, line_y * stride + 2 * x_stop
    down_from, down_to = y_start * stride + 2 * line_x, y_stop * stride + 2 * line_x
    # Where four edges meet, each turns right: from right to down, from down to left.
    turn_down = _continue(across_to, x_stop > x_start, down_from, y_stop > y_start)
    turn_across = _continue(down_to, y_stop < y_start, across_from, x_stop > x_start)
    corners = np.stack([x_start, line_y, x_stop, line_y], axis=1).reshape(-1, 2, 2)
    return [corners[ring].reshape(-1, 2) for ring in _cycles(turn_across[turn_down].tolist())]


def _grid_edges(step: NDArray[np.int8], forward: int) -> tuple[NDArray[np.int64], ...]:
    """Runs of +1 or of -1 in each row: row, start and stop in contour direction, and sign."""
    rows, columns = step.shape
    padded = np.zeros((rows, columns + 2), np.int8)
    padded[:, 1:-1] = step
    changes = padded[:, 1:] != padded[:, :-1]
    row, start = np.nonzero(changes & (padded[:, 1:] != 0))
    _, stop = np.nonzero(changes & (padded[:, :-1] != 0))
    sign = padded[row, start + 1].astype(np.int64) * forward
    return row, np.where(sign > 0, start, stop), np.where(sign > 0, stop, start), sign


def _continue(
    ends: NDArray[np.int64],
    prefers: NDArray[np.bool_],
    starts: NDArray[np.int64],
    kind: NDArray[np.bool_],
) -> NDArray[np.int64]:
    """For each end, the edge that starts there; of two, that of the preferred kind."""
    keys = starts + kind
    order = np.argsort(keys)
    index = np.searchsorted(keys[order], ends + prefers)
    index = np.minimum(index, len(keys) - 1)
    found = order[index]
    return np.where(starts[found] == ends, found, order[np.maximum(index - 1, 0)])


def _cycles(follow: list[int]) -> list[list[int]]:
    """The cycles of a permutation."""
    seen = bytearray(len(follow))
    cycles = []
    for start in range(len(follow)):
        cycle = []
        while not seen[start]:
            seen[start] = 1
            cycle.append(start)
            start = follow[start]
        if cycle:
            cycles.append(cycle)
    return cycles


def _distance_to_segment(points: Ring, start: Ring, stop: Ring) -> NDArray[np.float64]:
    along = stop - start
    length = float(along @ along)
    if length == 0:
        return np.asarray(np.hypot(*(points - start).T))
    share = np.clip((points - start) @ along / length, 0, 1)
    return np.asarray(np.hypot(*(points - start - share[:, None] * along).T))


def _nearest_corners(one: Ring, other: Ring) -> tuple[int, int]:
    """The indices of the nearest corners of two rings; long rings are searched in part."""
    some = other[: max(1, PAIRS_AT_ONCE // len(one))]
    apart = ((one[:, None] - some[None]) ** 2).sum(axis=2)
    here, there = np.unravel_index(int(np.argmin(apart)), apart.shape)
    return int(here), int(there)


def _extent(corners: Ring, size_hw: tuple[int, int]) -> tuple[slice, slice]:
    """The rows and columns of the image that a polygon can cover."""
    if not len(corners):
        return slice(0, 0), slice(0, 0)
    x, y = corners.T
    low = (np.floor(y.min()), np.floor(x.min()))
    high = (np.ceil(y.max()), np.ceil(x.max()))
    rows, columns = (
        slice(int(np.clip(a, 0, n)), int(np.clip(b, 0, n)))
        for a, b, n in zip(low, high, size_hw, strict=True)
    )
    return rows, columns


def _union(extents: Sequence[tuple[slice, slice]]) -> tuple[int, int, int, int]:
    """The top, left, bottom and right of all; zeros for none."""
    if not extents:
        return 0, 0, 0, 0
    rows, columns = zip(*extents, strict=True)
    return (
        min(part.start for part in rows),
        min(part.start for part in columns),
        max(part.stop for part in rows),
        max(part.stop for part in columns),
    )


def _fill(rings: Sequence[Ring], size_hw: tuple[int, ...]) -> Mask:
    """Even-odd fill: each edge flips all pixels right of where it crosses the row's centre."""
    height, width = size_hw
    flips = np.zeros((height, width + 1), np.uint8)
    starts = np.concatenate(rings)
    stops = np.concatenate([np.roll(ring, -1, axis=0) for ring in rings])
    for row, x in _crossings(starts, stops, height):
        column = np.clip(np.ceil(x - 0.5), 0, width).astype(np.int64)
        np.add.at(flips.ravel(), row * (width + 1) + column, 1)
    flips &= 1
    np.bitwise_xor.accumulate(flips, axis=1, out=flips)
    return np.ascontiguousarray(flips[:, :width]).view(np.bool_)


def _fill_columns(rings: Sequence[Ring], height: int, width: int) -> NDArray[np.uint8]:
    """As `_fill`, transposed: [W, H] of 0 and 1. Ten times as fast."""
    flips = np.zeros((width + 1, height), np.uint8)
    starts = np.concatenate(rings)
    stops = np.concatenate([np.roll(ring, -1, axis=0) for ring in rings])
    for row, x in _crossings(starts, stops, height):
        column = np.clip(np.ceil(x - 0.5), 0, width).astype(np.int64)
        np.add.at(flips.ravel(), column * height + row, 1)
    flips &= 1
    for i in range(1, width):
        np.bitwise_xor(flips[i], flips[i - 1], out=flips[i])
    return flips[:width]


def _crossings(
    start: Ring, stop: Ring, height: int
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float64]]]:
    """The rows whose centre an edge crosses, and the x of each intersection, in chunks."""
    first, many = _rows_of_edges(start, stop, height)
    ends = np.cumsum(many)
    total = int(ends[-1]) if len(ends) else 0
    for begin in range(0, total, CROSSINGS_AT_ONCE):
        end = min(begin + CROSSINGS_AT_ONCE, total)
        low, high = np.searchsorted(ends, (begin, end - 1), side="right")
        some = np.arange(low, high + 1)
        before = ends[some] - many[some]
        edge = np.repeat(some, np.minimum(ends[some], end) - np.maximum(before, begin))
        row = first[edge] + np.arange(begin, end) - (ends[edge] - many[edge])
        (x0, y0), (x1, y1) = start[edge].T, stop[edge].T
        yield row, x0 + (row + 0.5 - y0) * (x1 - x0) / (y1 - y0)


def _rows_of_edges(
    start: Ring, stop: Ring, height: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The first row whose centre each edge crosses, and the number of such rows."""
    top, bottom = np.minimum(start[:, 1], stop[:, 1]), np.maximum(start[:, 1], stop[:, 1])
    first = np.clip(np.ceil(top - 0.5), 0, height).astype(np.int64)
    last = np.clip(np.ceil(bottom - 0.5), 0, height).astype(np.int64)
    return first, last - first


def _cost(shape: Sequence[Ring], extent: tuple[slice, slice]) -> int:
    """The cost of filling a polygon, in pixels."""
    (top, bottom), (left, right) = ((part.start, part.stop) for part in extent)
    moved = [ring - (left, top) for ring in shape]
    crossed = sum(
        len(ring) + int(_rows_of_edges(ring, np.roll(ring, -1, axis=0), bottom - top)[1].sum())
        for ring in moved
    )
    return int(bottom - top) * int(right - left) + EDGE_PIXELS * crossed


def _rings_of(polygon: "Polygon | NDArray[np.floating]") -> tuple[NDArray[np.floating], ...]:
    return polygon.rings if isinstance(polygon, Polygon) else (polygon,)


def _check_ring(ring: NDArray[np.floating]) -> Ring:
    try:
        corners = np.asarray(ring, np.float64)
    except (TypeError, ValueError) as error:
        raise ImageError("a polygon is not made of numbers") from error
    if corners.ndim != 2 or corners.shape[1] != 2 or not np.isfinite(corners).all():
        raise ImageError(
            "a polygon is not a ring of finite corners",
            got=f"{list(corners.shape)}",
            expected="[K, 2], as (x, y)",
        )
    return np.clip(corners, -FAR, FAR)

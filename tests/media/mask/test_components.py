from itertools import product
from typing import Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from samgraph.errors import ImageError, OptionError
from samgraph.media.mask.components import (
    connected_components,
    drop_specks,
    fill_holes,
    largest_component,
    smooth,
)
from tests.media.shapes import Mask, masks, picture


def flooded(mask: Mask, connectivity: int) -> NDArray[np.int64]:
    """The obvious way: flood each piece from its first pixel."""
    labels = np.zeros(mask.shape, np.int64)
    steps = [s for s in product((-1, 0, 1), repeat=2) if sum(map(abs, s)) <= connectivity // 4]
    count = 0
    for first in zip(*np.nonzero(mask), strict=True):
        if labels[first]:
            continue
        count += 1
        waiting = [(int(first[0]), int(first[1]))]
        while waiting:
            y, x = waiting.pop()
            inside = 0 <= y < mask.shape[0] and 0 <= x < mask.shape[1]
            if inside and mask[y, x] and not labels[y, x]:
                labels[y, x] = count
                waiting += [(y + dy, x + dx) for dy, dx in steps]
    return labels


@pytest.mark.parametrize("connectivity", [4, 8])
@settings(deadline=None)
@given(mask=masks(14))
def test_pieces_are_those_of_a_flood(mask: Mask, connectivity: Literal[4, 8]) -> None:
    expected = flooded(mask, connectivity)

    labels, areas = connected_components(mask, connectivity)

    assert np.array_equal(labels, expected)
    assert areas.tolist() == np.bincount(expected.ravel(), minlength=len(areas)).tolist()


def test_a_corner_joins_only_with_eight_neighbours() -> None:
    mask = picture("#.", ".#")

    assert connected_components(mask, 8)[1].tolist() == [2, 2]
    assert connected_components(mask, 4)[1].tolist() == [2, 1, 1]


def test_a_spiral_is_one_piece() -> None:
    # Walk inwards, leaving a gap of one: the worst order for joining rows from the top.
    mask = np.zeros((61, 61), np.bool_)
    x = y = 0
    for length, (dx, dy) in zip(
        [60, 60, 60, *(n for n in range(58, 0, -2) for _ in range(2))],
        [(1, 0), (0, 1), (-1, 0), (0, -1)] * 16,
        strict=False,
    ):
        mask[min(y, y + dy * length) : max(y, y + dy * length) + 1, x] |= dy != 0
        mask[y, min(x, x + dx * length) : max(x, x + dx * length) + 1] |= dx != 0
        x, y = x + dx * length, y + dy * length

    labels, areas = connected_components(mask, 4)

    assert len(areas) == 2
    assert np.array_equal(labels > 0, mask)


def test_holes_up_to_a_size_are_filled() -> None:
    mask = picture(
        "########",
        "#.#....#",
        "###....#",
        "########",
    )

    assert fill_holes(mask, 1).sum() == mask.sum() + 1
    assert fill_holes(mask, 7).sum() == mask.sum() + 1
    assert fill_holes(mask, 8).all()
    assert np.array_equal(fill_holes(mask, 0), mask)


def test_background_at_the_border_is_filled_too_as_in_the_reference() -> None:
    assert fill_holes(picture("##.", "###"), 1).all()


def test_specks_up_to_a_size_are_dropped_but_never_all() -> None:
    mask = picture("#..##", "...##", ".....")

    assert np.array_equal(drop_specks(mask, 1), picture("...##", "...##", "....."))
    assert np.array_equal(drop_specks(mask, 100), picture("...##", "...##", "....."))
    assert not drop_specks(np.zeros((3, 3), np.bool_), 5).any()


def test_smoothing_lets_the_neighbourhood_vote() -> None:
    mask = picture(
        "#......",
        ".......",
        "..####.",
        "..#.##.",
        "..####.",
    )

    assert np.array_equal(
        smooth(mask, 1),
        picture(".......", ".......", "...##..", "..####.", "..####."),
    )
    assert np.array_equal(smooth(mask, 0), mask)


@settings(deadline=None)
@given(masks(12))
def test_smoothing_is_a_count_of_each_window(mask: Mask) -> None:
    padded, inside = np.pad(mask, 2), np.pad(np.ones_like(mask), 2)
    expected = mask.copy()
    for y, x in np.ndindex(*mask.shape):
        votes, of = padded[y : y + 5, x : x + 5].sum(), inside[y : y + 5, x : x + 5].sum()
        expected[y, x] = mask[y, x] if 2 * votes == of else 2 * votes > of

    assert np.array_equal(smooth(mask, 2), expected)


def test_bad_arguments_are_named() -> None:
    with pytest.raises(OptionError, match="unknown connectivity"):
        connected_components(picture("#"), 5)  # type: ignore[arg-type]  # that is what is tested
    with pytest.raises(ImageError, match="this is not a mask"):
        fill_holes(np.zeros((2, 2, 2), np.bool_), 1)
    with pytest.raises(OptionError, match="a radius is not negative"):
        smooth(picture("#"), -1)
    with pytest.raises(OptionError, match="a radius is a whole number"):
        smooth(picture("#"), 1.5)  # type: ignore[arg-type]  # that is what is tested


def flooded_volume(volume: Mask) -> Mask:
    """The largest component by flooding from each voxel to its 26 neighbours."""
    left = {tuple(map(int, where)) for where in np.argwhere(volume)}
    best: set[tuple[int, ...]] = set()
    for seed in sorted(left):
        if seed not in left:
            continue
        found, waiting = {seed}, [seed]
        left.discard(seed)
        while waiting:
            z, y, x = waiting.pop()
            for step in np.ndindex(3, 3, 3):
                near = (z + step[0] - 1, y + step[1] - 1, x + step[2] - 1)
                if near in left:
                    left.discard(near)
                    found.add(near)
                    waiting.append(near)
        best = found if len(found) > len(best) else best
    kept = np.zeros_like(volume)
    if best:
        kept[tuple(np.array(sorted(best)).T)] = True
    return kept


@given(arrays(np.bool_, st.tuples(*[st.integers(1, 5)] * 3)))
def test_the_largest_component_of_a_volume_is_the_flooded_one(volume: Mask) -> None:
    found = largest_component(volume)

    assert found.sum() == flooded_volume(volume).sum()
    assert not (found & ~volume).any()
    assert np.array_equal(flooded_volume(found), found)


def test_voxels_that_share_a_corner_are_one_component() -> None:
    volume = np.zeros((3, 4, 5), np.bool_)
    volume[0, 0, 0] = volume[1, 1, 1] = volume[2, 2, 2] = True
    volume[0, 3, 3:] = True

    assert largest_component(volume).sum() == 3
    assert not largest_component(np.zeros((2, 3, 4), np.bool_)).any()
    with pytest.raises(ImageError, match="not a mask of a volume"):
        largest_component(np.zeros((3, 4), np.bool_))

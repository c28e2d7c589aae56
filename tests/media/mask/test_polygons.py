import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings

from samgraph.errors import ImageError, OptionError
from samgraph.media.mask import polygons as module
from samgraph.media.mask.components import connected_components
from samgraph.media.mask.polygons import (
    Polygon,
    join_rings,
    mask_to_polygons,
    polygons_to_mask,
    polygons_to_rle,
    ring_area,
    simplify,
)
from samgraph.media.mask.rle import decode
from tests.media.shapes import Mask, discs, masks, picture


@settings(deadline=None)
@given(masks())
def test_exact_outlines_give_the_mask_back(mask: Mask) -> None:
    polygons = mask_to_polygons(mask)

    assert np.array_equal(polygons_to_mask(polygons, mask.shape), mask)
    assert len(polygons) == len(connected_components(mask, 4)[1]) - 1
    assert all(ring_area(polygon.outer) > 0 for polygon in polygons)
    assert all(ring_area(hole) < 0 for polygon in polygons for hole in polygon.holes)


@settings(deadline=None)
@given(masks())
def test_rings_joined_by_slits_fill_the_same_pixels(mask: Mask) -> None:
    rings = [ring for polygon in mask_to_polygons(mask) for ring in polygon.rings]
    if not rings:
        return

    assert np.array_equal(polygons_to_mask([join_rings(rings)], mask.shape), mask)


def test_an_outline_runs_clockwise_along_pixel_edges_and_holes_the_other_way() -> None:
    mask = picture(".....", ".###.", ".#.#.", ".###.")

    (polygon,) = mask_to_polygons(mask)

    assert polygon.outer.tolist() == [[1, 1], [4, 1], [4, 4], [1, 4]]
    (hole,) = polygon.holes
    assert sorted(hole.tolist()) == [[2, 2], [2, 3], [3, 2], [3, 3]]
    assert ring_area(hole) == -1


def test_pixels_that_touch_at_a_corner_are_two_polygons() -> None:
    assert len(mask_to_polygons(picture("#.", ".#"))) == 2
    assert len(mask_to_polygons(picture(".#", "#."))) == 2


def test_simplified_outlines_stay_within_the_tolerance() -> None:
    mask = discs(4, size=400, count=4)
    exact = mask_to_polygons(mask)

    simple = mask_to_polygons(mask, tolerance=1.0)

    corners = [sum(len(ring) for one in some for ring in one.rings) for some in (exact, simple)]
    changed = polygons_to_mask(simple, mask.shape) ^ mask
    assert corners[1] < corners[0] / 4
    assert changed.sum() < 0.02 * mask.sum()


def test_a_ring_too_small_to_simplify_is_kept_whole() -> None:
    plus = picture(".#.", "###", ".#.")

    (polygon,) = mask_to_polygons(plus, tolerance=50.0)

    assert len(polygon.outer) == 12
    assert simplify(polygon.outer, 50.0) is polygon.outer


def test_a_polygon_covers_the_pixels_whose_centre_it_holds() -> None:
    triangle = np.array([[0.0, 0.0], [4.0, 0.0], [0.0, 4.0]])

    mask = polygons_to_mask([triangle], (4, 5))

    assert np.array_equal(mask, picture("###..", "##...", "#....", "....."))


def test_polygons_overlap_as_a_union_and_rings_of_one_by_even_and_odd() -> None:
    square = np.array([[0.0, 0.0], [3.0, 0.0], [3.0, 3.0], [0.0, 3.0]])
    inner = np.array([[1.0, 1.0], [2.0, 1.0], [2.0, 2.0], [1.0, 2.0]])

    assert polygons_to_mask([square, inner], (3, 3)).all()
    assert polygons_to_mask([Polygon(square, (inner,))], (3, 3)).sum() == 8


def test_corners_far_outside_are_cut_at_the_image() -> None:
    huge = np.array([[-1e12, -1e12], [1e12, -1e12], [1e12, 1e12], [-1e12, 1e12]])

    assert polygons_to_mask([huge], (5, 7)).all()
    assert not polygons_to_mask([huge + 3e12], (5, 7)).any()
    assert not polygons_to_mask([np.zeros((0, 2))], (5, 7)).any()


@pytest.mark.parametrize("ring", [[[0, np.nan], [1, 1], [2, 0]], [[0, 1, 2]], [["a", "b"]]])
def test_corners_must_be_pairs_of_finite_numbers(ring: list[list[object]]) -> None:
    with pytest.raises(ImageError, match="a polygon is not"):
        polygons_to_mask([np.array(ring)], (4, 4))


def test_a_negative_tolerance_is_refused() -> None:
    with pytest.raises(OptionError, match="a tolerance is not negative"):
        mask_to_polygons(picture("#"), tolerance=-1)


@pytest.mark.parametrize("at_once", [1, 7, 1 << 20])
def test_polygons_are_encoded_as_their_mask_would_be(
    at_once: int, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    monkeypatch.setattr(module, "CROSSINGS_AT_ONCE", at_once)
    for _ in range(100):
        size_hw = (int(rng.integers(1, 30)), int(rng.integers(1, 30)))
        rings = [
            np.round(rng.uniform(-10, 40, (int(rng.integers(3, 8)), 2)) * 4) / 4
            for _ in range(int(rng.integers(0, 4)))
        ]

        found = decode(polygons_to_rle(rings, size_hw))

        assert np.array_equal(found, polygons_to_mask(rings, size_hw))


def test_the_cost_of_a_polygon_is_what_it_covers() -> None:
    costs: list[int] = []
    square = np.array([(100, 100), (110, 100), (110, 110), (100, 110)], float)

    polygons_to_rle([square], (10_000, 10_000), costs.append)

    assert costs == [2 * 10 * 10 + module.EDGE_PIXELS * (4 + 20)]


def test_a_tall_image_takes_no_more_memory_than_its_mask() -> None:
    """Where every edge crosses every row."""
    height = 1_000_000
    zigzag = np.array([(0.0, 0.0), (3.0, height)] * 4)
    tracemalloc.start()

    polygons_to_rle([zigzag], (height, 4))

    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 150e6  # all crossings at once would take 320 MB and more

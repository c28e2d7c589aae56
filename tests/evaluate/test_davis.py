import math

import numpy as np
import pytest

from samgraph.evaluate.davis import (
    Figures,
    boundary,
    box_of,
    contour_accuracy,
    copied_figures,
    dilate,
    mean_figures,
    region_similarity,
    sequence_figures,
)


def square(size: int, left: int, top: int, side: int) -> np.ndarray:
    mask = np.zeros((size, size), bool)
    mask[top : top + side, left : left + side] = True
    return mask


def test_region_similarity_is_intersection_over_union() -> None:
    a, b = square(20, 2, 2, 4), square(20, 4, 2, 4)

    assert region_similarity(a, a) == 1
    assert region_similarity(a, b) == pytest.approx(8 / 24)
    assert region_similarity(a, np.zeros_like(a)) == 0
    assert region_similarity(np.zeros_like(a), np.zeros_like(a)) == 1


def test_the_boundary_is_where_a_pixel_differs_from_right_or_below() -> None:
    mask = square(6, 2, 2, 2)

    edge = boundary(mask)

    expected = np.zeros((6, 6), bool)
    expected[1, 1:4] = expected[2, [1, 3]] = expected[3, 1:4] = True
    np.testing.assert_array_equal(edge, expected)
    assert not boundary(np.ones((4, 4), bool)).any()


@pytest.mark.parametrize("radius", [1, 2, 5])
def test_dilation_reaches_exactly_the_disc(radius: int) -> None:
    rng = np.random.default_rng(radius)
    mask = rng.random((23, 31)) < 0.02

    grown = dilate(mask, radius)

    rows, columns = np.nonzero(mask)
    y, x = np.mgrid[:23, :31]
    near = ((y[..., None] - rows) ** 2 + (x[..., None] - columns) ** 2 <= radius**2).any(-1)
    np.testing.assert_array_equal(grown, near)


def test_contours_within_the_tolerance_count_as_found() -> None:
    # 100 x 100: the tolerance is ceil(0.008 * 141.4) = 2 pixels
    truth = square(100, 20, 20, 40)

    assert contour_accuracy(truth, truth) == 1
    assert contour_accuracy(truth, square(100, 22, 20, 40)) == 1
    assert contour_accuracy(truth, square(100, 23, 20, 40)) < 1
    assert contour_accuracy(truth, square(100, 70, 70, 8)) == 0
    assert contour_accuracy(truth, np.zeros_like(truth)) == 0
    assert contour_accuracy(np.zeros_like(truth), np.zeros_like(truth)) == 1


def test_contour_accuracy_is_the_f_measure_worked_out_by_hand() -> None:
    truth, found = np.zeros((100, 100), bool), np.zeros((100, 100), bool)
    truth[:, :50] = True  # the boundary is column 49, 100 pixels
    found[:60, :50] = True  # 60 pixels of column 49 and a row of 50 below

    # recall: rows 0..59 and the two below within reach; precision: of 110 boundary pixels, those
    # of column 49 and the row's last three (columns 47 to 49, one shared) are near the truth
    recall = 62 / 100
    edge = boundary(found)
    near = edge & dilate(boundary(truth), 2)
    precision = np.count_nonzero(near) / np.count_nonzero(edge)
    assert np.count_nonzero(edge) == 109
    assert np.count_nonzero(near) == 62
    expected = 2 * precision * recall / (precision + recall)
    assert contour_accuracy(truth, found) == pytest.approx(expected)
    assert math.isclose(expected, 2 * (62 / 109) * 0.62 / (62 / 109 + 0.62))


def test_first_and_last_frame_are_left_out_and_255_is_no_object() -> None:
    labels = np.zeros((30, 30), np.uint8)
    labels[5:15, 5:15], labels[20:25, 20:25], labels[0, 0] = 1, 2, 255
    truth = [labels] * 4
    right = [labels == 1] * 4
    wrong = [labels == 2, labels == 2, np.zeros((30, 30), bool), labels == 2]

    figures = sequence_figures(truth, {1: right, 2: wrong})

    assert set(figures) == {1, 2}
    assert figures[1] == Figures(1.0, 1.0)
    assert figures[2] == Figures(0.5, 0.5)
    assert mean_figures(list(figures.values())).j_and_f == pytest.approx(0.75)


def test_the_frame_that_is_given_never_counts() -> None:
    labels = np.zeros((30, 30), np.uint8)
    labels[5:15, 5:15] = 1
    moved = np.roll(labels, 12, 1)

    # right on the given frame and wrong on the only other one
    assert sequence_figures([labels, moved], {1: [labels == 1] * 2})[1].j == 0
    assert copied_figures([labels, labels])[1] == Figures(1.0, 1.0)
    assert copied_figures([labels]) == {}


def test_copying_the_first_mask_scores_its_overlap_with_later_masks() -> None:
    frames = []
    for left in (2, 2, 4, 20, 20):
        labels = np.zeros((40, 40), np.uint8)
        labels[2:6, left : left + 4] = 3
        frames.append(labels)

    figures = copied_figures(frames)

    # of the three inner frames: still there, moved by half its width (8 of 24), and gone elsewhere
    assert set(figures) == {3}
    assert figures[3].j == pytest.approx((1 + 8 / 24 + 0) / 3)


def test_a_box_is_tight() -> None:
    mask = square(40, 10, 5, 12) | square(40, 30, 30, 3)

    assert box_of(mask) == (10, 5, 33, 33)

"""Simulated clicks, on cases that can be worked out on paper."""

import numpy as np
import pytest

from samgraph.errors import PromptError
from samgraph.evaluate import clicks
from samgraph.evaluate.clicks import Click, Mask, corrected, first_click, next_click, squared_depths


def box(size_hw: tuple[int, int], left: int, top: int, right: int, bottom: int) -> Mask:
    mask = np.zeros(size_hw, bool)
    mask[top:bottom, left:right] = True
    return mask


def empty(size_hw: tuple[int, int] = (20, 30)) -> Mask:
    return np.zeros(size_hw, bool)


def test_depths_of_a_small_shape_by_hand() -> None:
    mask = np.array(
        [
            [0, 0, 0, 0, 0, 0],
            [0, 1, 1, 1, 1, 0],
            [0, 1, 1, 1, 1, 0],
            [0, 1, 1, 1, 0, 0],
            [0, 0, 1, 0, 0, 0],
        ],
        bool,
    )

    # (2, 2) is two from the top and the left, but the corner at (4, 1) is 1 + 4 away
    assert squared_depths(mask).tolist() == [
        [0, 0, 0, 0, 0, 0],
        [0, 1, 1, 1, 1, 0],
        [0, 1, 4, 2, 1, 0],
        [0, 1, 2, 1, 0, 0],
        [0, 0, 1, 0, 0, 0],
    ]


def test_the_border_is_an_edge() -> None:
    assert squared_depths(np.ones((3, 5), bool)).tolist() == [
        [1, 1, 1, 1, 1],
        [1, 4, 4, 4, 1],
        [1, 1, 1, 1, 1],
    ]


@pytest.mark.parametrize("seed", range(6))
def test_depths_are_those_of_brute_force(seed: int) -> None:
    rng = np.random.default_rng(seed)
    height, width = rng.integers(1, 18, 2)
    mask = rng.random((height, width)) < (0.6, 0.9, 0.98)[seed % 3]

    outside = np.argwhere(~np.pad(mask, 1)) - 1
    pixels = np.argwhere(np.ones_like(mask))
    nearest = ((pixels[:, None] - outside[None]) ** 2).sum(-1).min(1)

    assert np.array_equal(squared_depths(mask), nearest.reshape(height, width))


def test_the_first_click_is_farthest_from_the_edge() -> None:
    mask = box((20, 30), 3, 4, 10, 11) | box((20, 30), 15, 5, 26, 8)

    assert first_click(mask) == Click(6.5, 7.5, 1)  # the middle of the 7 x 7 square


def test_of_equally_deep_points_the_first_is_taken() -> None:
    assert first_click(box((20, 30), 5, 5, 15, 8)) == Click(6.5, 6.5, 1)


def test_a_thin_object_is_clicked_on_itself() -> None:
    mask = empty()
    mask[4, 2:8] = True

    assert first_click(mask) == Click(2.5, 4.5, 1)


def test_an_empty_mask_cannot_be_clicked_on() -> None:
    with pytest.raises(PromptError, match="an empty mask has no point to click on"):
        first_click(empty())


def test_the_next_click_is_in_the_deepest_error() -> None:
    truth = box((20, 30), 2, 2, 12, 18)
    missing_five = truth & ~box((20, 30), 2, 2, 7, 7)
    three_too_many = box((20, 30), 20, 5, 23, 8)

    assert next_click(truth, missing_five | three_too_many) == Click(4.5, 4.5, 1)

    missing_three = truth & ~box((20, 30), 2, 2, 5, 5)
    five_too_many = box((20, 30), 20, 5, 25, 10)
    assert next_click(truth, missing_three | five_too_many) == Click(22.5, 7.5, 0)


def test_depth_decides_and_not_area() -> None:
    truth = box((20, 30), 1, 1, 6, 6)
    long_but_thin = box((20, 30), 0, 10, 30, 12)  # 60 pixels, of depth 1

    assert next_click(truth, long_but_thin) == Click(3.5, 3.5, 1)


def test_a_perfect_mask_needs_no_click() -> None:
    truth = box((20, 30), 2, 2, 12, 18)

    assert next_click(truth, truth) is None


def test_ignored_pixels_are_never_errors() -> None:
    truth, ignore = box((20, 30), 2, 2, 12, 18), box((20, 30), 12, 0, 30, 20)
    found = truth | box((20, 30), 15, 5, 25, 15)

    assert next_click(truth, found, ignore) is None
    assert next_click(truth, found) == Click(19.5, 9.5, 0)


def test_clicks_go_on_from_the_last_mask() -> None:
    """The predictions: the left half; then all and a false region; then the truth."""
    truth = box((20, 30), 4, 4, 16, 12)
    predictions = [truth & box((20, 30), 0, 0, 10, 20), truth | box((20, 30), 20, 4, 27, 11), truth]
    seen: list[list[Click]] = []

    def predict(given: list[Click]) -> Mask:
        seen.append(list(given))
        return predictions[len(given) - 1]

    masks = corrected(predict, truth, 5)

    first, second, third = Click(7.5, 7.5, 1), Click(12.5, 6.5, 1), Click(23.5, 7.5, 0)
    assert seen == [[first], [first, second], [first, second, third]]
    assert [int(mask.sum()) for mask in masks] == [48, 96 + 49, 96, 96, 96]


def test_a_large_region_is_measured_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    mask = box((90, 200), 20, 10, 61, 51)
    exact = first_click(mask)
    monkeypatch.setattr(clicks, "EXACT_SIDE", 10)

    click = first_click(mask)

    assert exact == Click(40.5, 30.5, 1)
    assert abs(click.x - exact.x) <= 5
    assert abs(click.y - exact.y) <= 5


def test_a_large_but_thin_region_is_measured_exactly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clicks, "EXACT_SIDE", 10)
    mask = box((90, 200), 5, 40, 195, 43)

    assert first_click(mask) == Click(6.5, 41.5, 1)

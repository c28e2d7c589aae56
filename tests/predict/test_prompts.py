"""Prompts that make no sense are one clear `PromptError`."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from samgraph.errors import PromptError
from samgraph.predict.prompts import assemble, join, read_prompts

SIZE_HW, SIDE = (120, 160), 64
INF, NAN = float("inf"), float("nan")

BAD: dict[str, tuple[dict[str, Any], str]] = {
    "nothing": ({}, "there is no prompt"),
    "no points": ({"points": []}, "there is no prompt"),
    "no boxes": ({"boxes": []}, "a box is x0, y0, x1, y1"),
    "one prompt of two is empty": ({"points": [[(1, 2)], []]}, "there is no prompt"),
    "left of the image": ({"points": [(-1, 5)]}, "`-1, 5` is outside the image"),
    "below the image": ({"points": [(5, 120.5)]}, "outside the image"),
    "x and y mixed up": ({"points": [(5, 150)]}, "x from 0 to 160, y from 0 to 120"),
    "not a number": ({"points": [(NAN, 5)]}, "not a finite number"),
    "endless": ({"points": [(INF, 5)]}, "not a finite number"),
    "words": ({"points": [("a", "b")]}, "`points` are not numbers"),
    "complex numbers": ({"points": [(1 + 2j, 3)]}, "`points` are not numbers"),
    "three coordinates": ({"points": [(1, 2, 3)]}, "pairs of x and y"),
    "a number": ({"points": 5}, "pairs of x and y"),
    "too few labels": ({"points": [(1, 2), (3, 4)], "labels": [1]}, "2 points, 1 labels"),
    "too many labels": ({"points": [(1, 2)], "labels": [1, 0]}, "every point needs a label"),
    "labels of another shape": (
        {"points": [[(1, 2)], [(3, 4)]], "labels": [1, 0, 1]},
        "every point needs a label",
    ),
    "a strange label": ({"points": [(1, 2)], "labels": [5]}, "there is no label `5`"),
    "half a label": ({"points": [(1, 2)], "labels": [0.5]}, "there is no label `0.5`"),
    "labels alone": ({"labels": [1]}, "labels are given without points"),
    "a box upside down": ({"box": (50, 60, 10, 20)}, "upside down"),
    "a swapped box": (
        {"box": (10, 60, 50, 20)},
        "left, top, right, bottom: 10,20,50,60",
    ),
    "a box without area": ({"box": (10, 20, 10, 60)}, "has no area"),
    "a box outside": ({"box": (10, 20, 170, 60)}, "the box corner `170, 60` is outside"),
    "a box of three": ({"box": (1, 2, 3)}, "a box is x0, y0, x1, y1"),
    "a box that is none": ({"box": "left"}, "`box` are not numbers"),
    "both kinds of boxes": ({"box": (1, 2, 3, 4), "boxes": [(1, 2, 3, 4)]}, "both `box`"),
    "points for one of two boxes": (
        {"boxes": [(1, 2, 3, 4), (5, 6, 7, 8)], "points": [(1, 2)]},
        "points for 1, boxes for 2",
    ),
    "logits of another size": ({"mask": np.zeros((32, 32), np.float32)}, "wrong size"),
    "a drawn mask of another size": ({"mask": np.ones((64, 64), np.bool_)}, "image's size"),
    "masks for no prompts": ({"mask": np.zeros((0, 64, 64), np.float32)}, "wrong size"),
    "three masks for a click": (
        {"points": [(1, 2)], "mask": np.zeros((3, 64, 64), np.float32)},
        "points for 1, masks for 3",
    ),
    "a mask with holes in its numbers": (
        {"mask": np.full((64, 64), NAN, np.float32)},
        "not a finite number",
    ),
    "a mask of words": ({"mask": np.array([["a"]])}, "wrong size"),
    "too many points": ({"points": np.ones((1001, 2))}, "1,001 points"),
}


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=4) | st.tuples(inner, inner),
    max_leaves=12,
)


def read(**given: Any) -> Any:
    return read_prompts(SIZE_HW, SIDE, **given)


@given(st.dictionaries(st.sampled_from(["points", "labels", "box", "boxes", "mask"]), JUNK))
def test_junk_is_a_prompt_or_a_prompt_error(junk: dict[str, Any]) -> None:
    try:
        prompts = read(**junk)
    except PromptError:
        return
    assert all(len(prompt.points) == len(prompt.labels) for prompt in prompts)


@pytest.mark.parametrize("name", BAD)
def test_a_prompt_without_sense_is_refused(name: str) -> None:
    given, message = BAD[name]

    with pytest.raises(PromptError) as caught:
        read(**given)

    assert message in str(caught.value)


def test_the_far_edges_belong_to_the_image() -> None:
    (prompt,) = read(points=[(0, 0), (160, 120)])

    assert prompt.points.tolist() == [[0, 0], [160, 120]]


def test_a_box_is_two_points_in_front() -> None:
    (prompt,) = read(points=[(5, 6)], labels=[0], box=(1, 2, 3, 4))

    assert prompt.points.tolist() == [[1, 2], [3, 4], [5, 6]]
    assert prompt.labels.tolist() == [2, 3, 0]


@pytest.mark.parametrize(
    "points",
    [
        [[(1, 2)], [(3, 4)]],
        np.array([[[1, 2]], [[3, 4]]]),
        [np.array([[1, 2]]), np.array([[3, 4]])],
        (((1, 2),), ((3, 4),)),
    ],
)
def test_lists_of_points_are_several_prompts(points: Any) -> None:
    assert [prompt.points.tolist() for prompt in read(points=points)] == [[[1, 2]], [[3, 4]]]


@pytest.mark.parametrize("labels", [[1, 0], (1, 0), np.array([1, 0]), [True, False], [1.0, 0.0]])
def test_labels_are_taken_in_any_form(labels: Any) -> None:
    (prompt,) = read(points=[(1, 2), (3, 4)], labels=labels)

    assert prompt.labels.tolist() == [1, 0]


def test_shorter_prompts_are_filled_up_with_nothing() -> None:
    prompts = read(points=[[(80, 60)], [(0, 0), (160, 120)]])

    batch = assemble(prompts, SIZE_HW, 256, SIDE)

    assert batch.points.tolist() == [[[128, 128], [0, 0]], [[0, 0], [256, 256]]]
    assert batch.labels.tolist() == [[1, -2], [1, 1]]
    assert batch.mask is None


def test_masks_stand_where_they_are_given() -> None:
    logits = np.full((1, SIDE, SIDE), 3, np.float32)
    one = assemble(read(points=[(1, 2)]), SIZE_HW, 256, SIDE)
    two = assemble(read(points=[(1, 2), (3, 4)], mask=logits), SIZE_HW, 256, SIDE)

    batch = join([one, two, one])

    assert batch.has_mask.tolist() == [False, True, False]
    assert batch.mask is not None
    assert batch.mask[:, 0, 0, 0].tolist() == [0, 3, 0]
    assert batch.labels.tolist() == [[1, -2], [1, 1], [1, -2]]


def test_a_drawn_mask_becomes_logits_of_ten() -> None:
    drawn = np.zeros(SIZE_HW, np.uint8)
    drawn[:60] = 255

    (prompt,) = read(mask=drawn)

    assert prompt.logits.shape == (SIDE, SIDE)
    assert prompt.logits[0, 0] == 10
    assert prompt.logits[-1, -1] == -10

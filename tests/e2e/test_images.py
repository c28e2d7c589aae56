"""The built-in model on scenes with exact masks: what a newcomer sees is right."""

from functools import cache

import numpy as np
import pytest

import samgraph
from samgraph.evaluate.clicks import first_click
from samgraph.evaluate.davis import box_of, region_similarity
from samgraph.evaluate.images import Overlaps, image_figures
from tests.checkpoint.built_in import needs_built_in
from tests.e2e.scenes import HEIGHT, WIDTH, Mask, Pixels, scene

SEEDS = range(4)
GOOD = 0.85
drawn = cache(scene)


def test_the_scenes_are_what_they_say() -> None:
    """Five shapes that do not overlap, the fourth partly occluded by the fifth; always the same."""
    for seed in SEEDS:
        picture, masks = drawn(seed)
        again, _ = scene(seed)
        assert picture.shape == (HEIGHT, WIDTH, 3)
        assert np.array_equal(picture, again)
        assert len(masks) == 5
        assert np.stack(masks).sum(0).max() == 1
        assert min(int(mask.sum()) for mask in masks) > 3000


def by_click(model: samgraph.Model, picture: Pixels, masks: list[Mask]) -> list[float]:
    image = model.image(picture)
    clicks = [first_click(mask).point for mask in masks]
    found = [image.predict(points=[click]).mask for click in clicks]
    return [region_similarity(*pair) for pair in zip(masks, found, strict=True)]


@needs_built_in
@pytest.mark.parametrize("seed", SEEDS)
def test_one_click_finds_a_shape(model: samgraph.Model, seed: int) -> None:
    """The shape that lies under another has two meanings, so the median of the five counts."""
    overlaps = by_click(model, *drawn(seed))

    assert np.median(overlaps) >= GOOD, overlaps


@needs_built_in
@pytest.mark.parametrize("seed", SEEDS)
def test_boxes_and_corrections_find_a_shape(model: samgraph.Model, seed: int) -> None:
    picture, masks = drawn(seed)
    labels = sum(number * mask.astype(np.uint8) for number, mask in enumerate(masks, 1))

    mean = Overlaps.mean(list(image_figures(model.image(picture), np.asarray(labels)).values()))

    assert mean.box >= GOOD, mean
    assert mean.five_clicks >= GOOD, mean


@needs_built_in
def test_several_boxes_at_once_are_the_boxes_one_by_one(model: samgraph.Model) -> None:
    picture, masks = drawn(0)
    image, boxes = model.image(picture), [box_of(mask) for mask in masks]

    together = image.predict(boxes=boxes, multimask=False).best.masks

    for mask, box in zip(together, boxes, strict=True):
        alone = image.predict(box=box, multimask=False).mask
        assert region_similarity(mask, alone) >= 0.99


@needs_built_in
def test_everything_finds_most_shapes(model: samgraph.Model) -> None:
    picture, masks = drawn(1)

    found = model.everything(
        picture,
        points_per_side=12,
        pred_iou_thresh=0.7,
        stability_score_thresh=0.85,
        progress=False,
    ).masks

    best = [max((region_similarity(mask, one) for one in found), default=0.0) for mask in masks]
    assert sum(overlap >= 0.75 for overlap in best) >= 3, best

"""The built-in model on clips with exact masks: an object is kept through an occlusion."""

from functools import cache
from pathlib import Path

import numpy as np
import pytest

import samgraph
from samgraph.evaluate.davis import region_similarity
from tests.checkpoint.built_in import needs_built_in
from tests.e2e.scenes import clip, save

GOOD = 0.85
drawn = cache(clip)


def spans(areas: list[int]) -> tuple[range, range, range]:
    """The frames before the object goes out of sight, those without it, and those after."""
    hidden = [number for number, area in enumerate(areas) if not area]
    return range(hidden[0]), range(hidden[0], hidden[-1] + 1), range(hidden[-1] + 1, len(areas))


def test_the_clip_hides_its_object_for_a_while() -> None:
    areas = [int(mask.sum()) for mask in drawn(0)[1]]

    before, hidden, after = spans(areas)

    assert len(before) > 10
    assert len(hidden) >= 3
    assert len(after) > 10
    assert all(areas[number] for number in (*before, *after))


@needs_built_in
@pytest.mark.parametrize("seed", [0, 1])
def test_an_object_is_followed_until_it_is_hidden(
    model: samgraph.Model, tmp_path: Path, seed: int
) -> None:
    pictures, truth = drawn(seed)
    whole = [n for n in range(1, len(truth)) if truth[n].sum() > 0.9 * truth[0].sum()]
    before = [n for n in whole if n < spans([int(mask.sum()) for mask in truth])[1][0]]
    save(pictures[: before[-1] + 1], tmp_path / "frames")

    with model.video(tmp_path / "frames") as video:
        video.add(frame=0, object=1, mask=truth[0])
        found = [frame.mask(1) for frame in video.track()]

    followed = np.mean([region_similarity(truth[n], found[n]) for n in before])
    copied = np.mean([region_similarity(truth[n], truth[0]) for n in before])
    assert followed >= GOOD
    assert followed >= copied + 0.2


@needs_built_in
@pytest.mark.parametrize("prompt", ["mask", "click"])
@pytest.mark.parametrize("seed", [0, 1])
def test_an_object_is_kept_through_an_occlusion(
    model: samgraph.Model, tmp_path: Path, prompt: str, seed: int
) -> None:
    pictures, truth = drawn(seed)
    save(pictures, tmp_path / "frames")
    y, x = np.argwhere(truth[0]).mean(0)

    with model.video(tmp_path / "frames") as video:
        if prompt == "mask":
            video.add(frame=0, object=1, mask=truth[0])
        else:
            video.add(frame=0, object=1, points=[(x, y)])
        found = [frame.mask(1) for frame in video.track()]

    before, hidden, after = spans([int(mask.sum()) for mask in truth])
    overlap = [region_similarity(*pair) for pair in zip(truth, found, strict=True)]
    whole = {n for n, mask in enumerate(truth) if mask.sum() > 0.9 * truth[0].sum()}
    assert np.mean([overlap[n] for n in whole.intersection(before)]) >= GOOD
    assert np.mean([found[n].sum() for n in hidden]) <= 0.2 * truth[0].sum()
    assert np.mean([overlap[n] for n in whole.intersection(after)]) >= GOOD
    assert np.mean([overlap[n] for n in (*before, *after)]) >= 0.75  # slivers too

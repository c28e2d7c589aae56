"""Clicks on tracked frames are obeyed where the config says so, whatever memory says."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import samgraph
from samgraph.media.image.preprocess import upscale_masks
from samgraph.models.family import SegmentationModel
from samgraph.models.loading import load_model
from samgraph.models.nano.config import NANO
from samgraph.models.sam2.config import CONFIGS
from samgraph.predict.video import corrections, session
from samgraph.predict.video.corrections import best_mask, values_at
from samgraph.predict.video.policy import ReferencePolicy
from samgraph.predict.video.step import Clicks, Outcome, paint
from samgraph.predict.video.video import Video, open_video
from tests.golden import scenes
from tests.models.sam2.bench import config_of, known_weights

SIDE = 8
INSIDE, OUTSIDE = 4.0, -4.0


def half(columns: slice, value: float = INSIDE) -> np.ndarray[Any, Any]:
    """Logits of a mask of some columns."""
    logits = np.full((SIDE, SIDE), OUTSIDE, np.float32)
    logits[:, columns] = value
    return logits


LEFT, RIGHT, ALL = half(slice(4)), half(slice(4, 8)), half(slice(8))
ON_LEFT, ON_RIGHT = (0.2, 0.5), (0.8, 0.5)


def chosen(points: list[tuple[float, float]], labels: list[int], ious: list[float]) -> int:
    clicks = Clicks(np.array(points, np.float32), np.array(labels))
    masks = np.stack([LEFT, RIGHT, ALL])
    return best_mask(masks, np.array(ious, np.float32), clicks, LEFT > 0)


def test_the_clicks_decide_first() -> None:
    assert chosen([ON_RIGHT, ON_LEFT], [1, 0], [0.9, 0.1, 0.9]) == 1
    assert chosen([ON_RIGHT, ON_LEFT], [1, 1], [0.9, 0.9, 0.1]) == 2
    assert chosen([ON_RIGHT], [0], [0.1, 0.9, 0.9]) == 0


def test_then_predicted_iou_and_memory_which_counts_less_with_every_click() -> None:
    assert chosen([ON_LEFT], [1], [0.5, 0.5, 0.9]) == 0  # memory says left: 2.5, and 1.9 for all
    assert chosen([ON_LEFT] * 4, [1] * 4, [0.5, 0.5, 0.9]) == 2  # 1.0 and 1.15


def test_logits_are_read_between_pixels_and_at_the_edge() -> None:
    ramp = np.tile(np.arange(4, dtype=np.float32), (4, 1))[None]
    xy = np.array([(0.5, 0.5), (0.0, 0.0), (1.0, 1.0), (0.3125, 0.9)], np.float32)

    np.testing.assert_allclose(values_at(ramp, xy), [[1.5, 0, 3, 0.75]], atol=1e-6)
    np.testing.assert_allclose(values_at(ramp.swapaxes(1, 2), xy[:1, ::-1]), [[1.5]])


def model(**fields: Any) -> SegmentationModel:
    config = replace(config_of({"config": "test"}).at_size(128), **fields)
    return load_model(known_weights(config_of({"config": "test"}), 100), config=config)


@pytest.fixture(scope="module")
def obeying() -> SegmentationModel:
    return model(obeys_clicks=True)


def tracked(core: SegmentationModel) -> Video:
    video = open_video(core, [scenes.frame(i) for i in range(4)])
    video.add(frame=0, object=1, points=[(40, 50)])
    for _ in video.track():
        pass
    return video


def test_a_click_is_answered_by_the_mask_that_obeys_it(obeying: SegmentationModel) -> None:
    video = tracked(obeying)
    calls: list[tuple[Any, ...]] = []

    def noted(*given: Any) -> Outcome:
        calls.append(given)
        return corrections.correct(*given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session, "correct", noted)
        remembered = np.array(video.states[1].latest[1].logits)  # type: ignore[index]
        video.add(frame=3, object=1, points=[(20, 30)], labels=[1])
        video.add(frame=3, object=1, points=[(90, 90)], labels=[0])
    assert len(calls) == 2
    (_, features, first, previous, memory), (_, _, both, again, same) = calls
    assert not features.is_conditioned
    assert (len(first.labels), len(both.labels)) == (1, 2)
    np.testing.assert_array_equal(previous, remembered)
    np.testing.assert_array_equal(memory, remembered)
    np.testing.assert_array_equal(same, remembered)  # what memory says, not the first answer
    answer = video.states[1].answers[3]
    assert not np.array_equal(again, remembered)
    size = obeying.preprocessing.size
    as_given = paint(obeying, features, upscale_masks(np.asarray(answer.logits), (size, size)))
    np.testing.assert_array_equal(answer.pointer, as_given.pointer)
    assert float(np.asarray(answer.score)[0]) == float(np.asarray(as_given.score)[0])


def test_new_clicks_in_place_of_old_ones_are_corrections_too(obeying: SegmentationModel) -> None:
    video = tracked(obeying)
    video.add(frame=2, object=1, points=[(20, 30)])
    video.add(frame=2, object=1, points=[(20, 30), (90, 90)], labels=[1, 0], replace=True)

    assert video.states[1].tracked[2] is False
    assert len(video.states[1].prompts[2].labels) == 2
    plain = tracked(model())
    plain.add(frame=2, object=1, points=[(20, 30)])
    plain.add(frame=2, object=1, points=[(20, 30), (90, 90)], labels=[1, 0], replace=True)
    assert 2 not in plain.states[1].tracked


def test_the_only_prompts_in_place_of_themselves_begin_anew(obeying: SegmentationModel) -> None:
    """Nothing is remembered that they could correct."""
    video = tracked(obeying)
    still = open_video(obeying, [scenes.frame(i) for i in range(4)])
    given: dict[str, Any] = {"points": [(40, 50), (90, 90)], "labels": [1, 0]}

    again = video.add(frame=0, object=1, **given, replace=True)

    assert 0 not in video.states[1].tracked
    np.testing.assert_array_equal(again.mask(1), still.add(frame=0, object=1, **given).mask(1))


def test_a_box_is_answered_as_on_a_still_image(obeying: SegmentationModel) -> None:
    video, still = tracked(obeying), open_video(obeying, [scenes.frame(i) for i in range(4)])
    box = (20, 30, 90, 80)

    shown = video.add(frame=3, object=1, box=box)
    alone = still.add(frame=3, object=1, box=box)
    np.testing.assert_array_equal(shown.mask(1), alone.mask(1))


def test_what_is_remembered_follows_the_config(obeying: SegmentationModel) -> None:
    assert ReferencePolicy.of(obeying.config).max_prompted == 1
    assert ReferencePolicy.of(obeying.config, max_prompted=3).max_prompted == 3
    assert NANO.obeys_clicks
    for config in CONFIGS.values():
        assert not config.obeys_clicks
        assert ReferencePolicy.of(config).max_prompted is None


def test_the_built_in_model_obeys_clicks_in_the_middle_of_a_track() -> None:
    frames = [scenes.frame(i) for i in range(6)]
    video = samgraph.load().video(frames)
    video.add(frame=0, object=1, points=[(40, 50)])
    for _ in video.track():
        pass
    clicks = [((120.0, 30.0), 1), ((40.0, 50.0), 0), ((30.0, 100.0), 0)]
    for count in range(1, 4):
        (point, label) = clicks[count - 1]
        shown = video.add(frame=5, object=1, points=[point], labels=[label]).mask(1)
        for (x, y), wanted in clicks[:count]:
            assert shown[int(y), int(x)] == bool(wanted), (count, x, y)

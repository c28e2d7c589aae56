"""Videos: tracking, corrections that stick, and doing again only what changed."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from samgraph.errors import OptionError, PromptError
from samgraph.predict.video import feed
from samgraph.predict.video.result import FrameResult
from samgraph.predict.video.video import Video, open_video
from tests import tolerances
from tests.compat.sessions import predictor_for
from tests.golden import scenes
from tests.predict.models import own_video, small_model, tiny_model
from tests.predict.watching import Counts

FRAMES = 8
BOX = (17, 27, 63, 73)


def opened(frames: int = FRAMES, **options: Any) -> Video:
    return open_video(tiny_model(), scenes.frames(frames), memory_precision="fp32", **options)


def lows(results: Any) -> dict[int, npt.NDArray[np.float32]]:
    return {result.index: result.low_logits for result in results}


def assert_alike(one: Any, other: Any) -> None:
    """Equal but for rounding: objects run alone, or beside others."""
    assert one.keys() == other.keys()
    for frame in one:
        np.testing.assert_allclose(one[frame], other[frame], atol=2e-3, err_msg=f"frame {frame}")


def test_tracking_gives_what_the_reference_gave() -> None:
    golden = own_video("test_fp32mem")
    model = small_model(golden.weights_seed)
    video = open_video(model, scenes.frames(), memory_precision="fp32")
    video.add(frame=0, object="disc", box=BOX)

    results = list(video.track())

    assert [result.index for result in results] == list(range(10))
    for result in results:
        at = f"e01_f{result.index:05d}"
        assert golden.difference(f"{at}_low", result.low_logits) < tolerances.VIDEO_LOGITS
        assert golden.difference(f"{at}_score", result.object_scores) < tolerances.VIDEO_SCORE
        assert golden.disagreement(f"{at}_bits", result.masks) < tolerances.VIDEO_PIXELS_SMALL
        assert result.objects == ("disc",)


def session(video: Video) -> list[dict[int, npt.NDArray[np.float32]]]:
    """Clicks, corrections and tracking to and fro."""
    video.add(frame=2, object=1, box=BOX)
    found = [lows(video.track(logits=True))]
    video.add(frame=3, object=2, points=[(118, 66)])
    video.add(frame=3, object=2, points=[(90, 20)], labels=[0])
    corrected = video.add(frame=5, object=1, points=[(100, 62)])
    found.append({5: corrected.low_logits[:1]})
    found.append(lows(video.track(start=6, logits=True)))
    found.append(lows(video.track(logits=True)))
    found.append(lows(video.track(start=4, reverse=True, logits=True)))
    corrected = video.add(frame=1, object=2, points=[(20, 100)], labels=[0])
    found.append({1: corrected.low_logits[-1:]})
    found.append(lows(video.track(both=True, logits=True)))
    return found


def reference_session() -> list[dict[int, npt.NDArray[np.float32]]]:
    """The same through `compat`, which forgets nothing, with corrections kept."""
    predictor = predictor_for(
        tiny_model(), "memory_precision=fp32", "add_all_frames_to_correct_as_cond=true"
    )
    state = predictor.init_state(scenes.frames(FRAMES))

    def prompted(frame: int, name: int, **given: Any) -> Any:
        predictor.add_new_points_or_box(state, frame, name, **given)
        stores = state["temp_output_dict_per_obj"][name - 1]
        return stores["cond_frame_outputs"][frame]["pred_masks"][0]

    def tracked(**given: Any) -> Any:
        found = {}
        for frame, _, _ in predictor.propagate_in_video(state, **given):
            outs = [
                {**stores["non_cond_frame_outputs"], **stores["cond_frame_outputs"]}[frame]
                for stores in state["output_dict_per_obj"].values()
            ]
            found[frame] = np.concatenate([out["pred_masks"][0] for out in outs])
        return found

    prompted(2, 1, box=BOX)
    found = [tracked()]
    prompted(3, 2, points=[(118, 66)], labels=[1])
    prompted(3, 2, points=[(90, 20)], labels=[0], clear_old_points=False)
    found.append({5: prompted(5, 1, points=[(100, 62)], labels=[1])})
    found.append(tracked(start_frame_idx=6))
    found.append(tracked())
    found.append(tracked(start_frame_idx=4, reverse=True))
    found.append({1: prompted(1, 2, points=[(20, 100)], labels=[0])})
    forward, backward = tracked(), tracked(start_frame_idx=1, reverse=True)
    found.append(forward | {frame: backward[frame] for frame in backward if frame < 1})
    return found


def test_a_session_is_that_of_the_reference_told_to_keep_corrections() -> None:
    expected = reference_session()

    found = session(opened())

    for one, other in zip(found, expected, strict=True):
        assert_alike(one, other)


def test_small_stores_change_no_number() -> None:
    roomy, tight = opened(), opened(archive_mb=0, results_mb=0, cache_mb=0)

    for one, other in zip(session(roomy), session(tight), strict=True):
        assert_alike(one, other)


def test_a_correction_sticks() -> None:
    video = opened()
    video.add(frame=0, object=1, box=BOX)
    before = {result.index: result for result in video.track()}

    corrected = video.add(frame=5, object=1, points=[(100, 62)])
    after = {result.index: result for result in video.track()}

    assert before[5].object_scores[0] != corrected.object_scores[0]
    assert after[5].prompted.all()
    np.testing.assert_array_equal(after[5].low_logits, corrected.low_logits)
    assert before[6].object_scores[0] != after[6].object_scores[0]


def test_clicks_add_up_and_can_be_started_over() -> None:
    video = opened()
    alone = video.add(frame=0, object=1, points=[(40, 50)])
    both = video.add(frame=0, object=1, points=[(60, 90)], labels=[0])
    prompt = video.states[1].prompts[0]

    again = video.add(frame=0, object=1, points=[(40, 50)], replace=True)

    assert prompt.points.tolist() == [[40, 50], [60, 90]]
    assert not np.array_equal(alone.low_logits, both.low_logits)
    np.testing.assert_array_equal(alone.low_logits, again.low_logits)


def test_a_mask_is_taken_as_the_answer() -> None:
    mask = np.zeros((scenes.HEIGHT, scenes.WIDTH), np.bool_)
    mask[30:80, 20:70] = True
    video = opened()

    result = video.add(frame=0, object=1, mask=mask)

    assert np.mean(result.masks[0] != mask) < 0.01
    assert result.scores.tolist() == [1.0]
    assert [len(frame) for frame in video.track(end=2)] == [1, 1, 1]


def test_only_what_changed_is_done_again() -> None:
    video = opened()
    counts = Counts(video)
    video.add(frame=0, object=1, box=BOX)
    first = [result.masks for result in video.track()]
    assert counts.take() == (FRAMES, FRAMES - 1)

    again = [result.masks for result in video.track()]
    assert counts.take() == (0, 0)

    video.add(frame=0, object=2, points=[(118, 84)])
    both = [result.masks for result in video.track()]
    assert counts.take() == (0, FRAMES - 1)
    for one, other, pair in zip(first, again, both, strict=True):
        np.testing.assert_array_equal(one, other)
        np.testing.assert_array_equal(one[0], pair[0])


def test_tracking_goes_on_where_it_stopped() -> None:
    whole = opened()
    whole.add(frame=0, object=1, box=BOX)
    expected = lows(whole.track())
    video = opened(results_mb=0)
    counts = Counts(video)
    video.add(frame=0, object=1, box=BOX)

    found = lows(video.track(end=3)) | lows(video.track(start=4))

    assert_alike(found, expected)
    assert counts.take() == (FRAMES, FRAMES - 1)


def test_memories_that_were_let_go_are_made_again() -> None:
    """A run from the middle, long after the frames before it have been forgotten."""
    whole, video = opened(24, results_mb=0), opened(24, archive_mb=0, results_mb=0)
    for one in (whole, video):
        one.add(frame=0, object=1, box=BOX)
        list(one.track())
    counted, counts = Counts(whole), Counts(video)

    found = lows(video.track(start=13, end=13))
    expected = lows(whole.track(start=13, end=13))

    assert_alike(found, expected)
    assert counted.take()[1] == 1
    assert counts.take()[1] > 5


def test_a_correction_far_back_reads_what_tracking_found_there() -> None:
    whole, video = opened(24), opened(24, archive_mb=0.1, cache_mb=0)
    corrected = []
    for one in (whole, video):
        one.add(frame=0, object=1, box=BOX)
        list(one.track())
        corrected.append(one.add(frame=12, object=1, points=[(40, 50)]).low_logits)

    np.testing.assert_allclose(corrected[0], corrected[1], atol=2e-3)


def test_an_object_added_in_mid_run_is_tracked_from_the_next_frame_on() -> None:
    video = opened()
    video.add(frame=0, object=1, box=BOX)
    seen = []

    for result in video.track(end=5):
        seen.append(result.objects)
        if result.index == 2:
            video.add(frame=2, object="late", points=[(118, 66)])

    assert seen == [(1,)] * 3 + [(1, "late")] * 3


def test_both_directions_from_the_first_prompt() -> None:
    video = opened()
    video.add(frame=3, object=1, box=BOX)

    frames = [result.index for result in video.track(both=True)]

    assert frames == [3, 4, 5, 6, 7, 2, 1, 0]


def test_a_run_has_a_start_and_an_end() -> None:
    video = opened()
    video.add(frame=1, object=1, box=BOX)
    video.add(frame=5, object=1, box=BOX)

    forward = [result.index for result in video.track(start=2, end=4)]
    backward = [result.index for result in video.track(reverse=True, end=3)]

    assert forward == [2, 3, 4]
    assert backward == [5, 4, 3]


def test_a_run_without_a_frame_is_refused() -> None:
    video = opened()
    video.add(frame=3, object=1, box=BOX)

    with pytest.raises(OptionError, match="no frame to track"):
        video.track(start=5, end=2)
    with pytest.raises(OptionError, match="no frame to track"):
        video.track(end=2)
    with pytest.raises(OptionError, match="no frame to track"):
        video.track(reverse=True, end=4)


def test_tracking_ends_when_there_is_no_object_left() -> None:
    video = open_video(tiny_model(), iter(scenes.frames(FRAMES)))
    video.add(frame=0, object=1, box=BOX)
    seen = []

    for result in video.track():
        seen.append(result.index)
        if result.index == 2:
            video.remove(1)

    assert seen == [0, 1, 2]


def test_objects_and_prompts_can_be_taken_back() -> None:
    video = opened()
    video.add(frame=0, object=1, box=BOX)
    video.add(frame=0, object=2, points=[(118, 84)])
    video.add(frame=3, object=2, points=[(118, 66)])

    with pytest.raises(PromptError, match=f"no frame {FRAMES}"):
        video.clear(frame=FRAMES)
    video.clear(frame=3)
    assert list(video.objects) == [1, 2]
    video.clear(frame=0, object=2)
    assert list(video.objects) == [1]
    video.remove(1)
    assert list(video.objects) == []
    video.add(frame=0, object=1, box=BOX)
    video.reset()
    assert list(video.objects) == []


def test_clearing_a_correction_brings_back_the_first_result() -> None:
    video = opened()
    video.add(frame=0, object=1, box=BOX)
    before = lows(video.track(logits=True))
    video.add(frame=5, object=1, points=[(100, 62)])
    list(video.track(logits=True))

    video.clear(frame=5, object=1)

    assert_alike(lows(video.track(logits=True)), before)


def test_objects_of_another_video_are_found_by_what_is_remembered() -> None:
    first, second = opened(), opened()
    first.add(frame=0, object="disc", box=BOX)
    list(first.track())

    second.remember(first)
    results = list(second.track(end=3))

    assert [result.index for result in results] == [0, 1, 2, 3]
    assert all(result.objects == ("disc",) for result in results)
    assert list(second.states["disc"].bank.prompted) == [-1]


def shown(video: Video, end: int = 2) -> list[FrameResult]:
    video.add(frame=0, object=1, box=BOX)
    video.add(frame=0, object=2, points=[(40, 50)])
    return list(video.track(end=end))


def test_masks_may_be_kept_from_overlapping() -> None:
    for result in shown(opened(overlaps=False)):
        assert result.masks.sum(axis=0).max() <= 1
    assert any(result.masks.sum(axis=0).max() > 1 for result in shown(opened()))


def test_an_object_below_the_score_threshold_is_not_shown() -> None:
    for result in shown(opened(score_threshold=1e9)):
        assert not result.present.any()
        assert not result.masks.any()


def test_a_higher_mask_threshold_gives_smaller_masks() -> None:
    for plain, strict in zip(shown(opened()), shown(opened(mask_threshold=1.0)), strict=True):
        assert (strict.masks <= plain.masks).all()
        np.testing.assert_array_equal(strict.masks, plain.logits > 1.0)


def test_holes_are_filled_in_what_is_shown_not_in_what_is_remembered() -> None:
    plain, filled = opened(), opened(fill_holes=1000)
    for video in (plain, filled):
        video.add(frame=0, object=1, points=[(40, 50)])
        list(video.track(end=1))

    one, other = (v.states[1].bank.tracked[1].pointer.buffer for v in (plain, filled))
    assert one.shape == other.shape
    low, whole = (next(v.track(start=1, end=1)).low_logits for v in (plain, filled))
    assert ((low > 0) <= (whole > 0)).all()


def test_results_say_everything_about_a_frame() -> None:
    result = shown(opened())[1]

    assert len(result) == 2
    assert result.masks.shape == (2, scenes.HEIGHT, scenes.WIDTH)
    assert result.logits.shape == result.masks.shape
    assert result.boxes.shape == (2, 4)
    assert result.areas.tolist() == result.masks.sum(axis=(1, 2)).tolist()
    assert result.size_hw == (scenes.HEIGHT, scenes.WIDTH)
    assert result.time is None
    np.testing.assert_array_equal(result.mask(2), result.masks[1])
    assert [one.object_id for one in result.segments] == [1, 2]
    np.testing.assert_array_equal(result.segments[0].mask, result.masks[0])
    assert dict(result).keys() == {1, 2}


def test_a_result_can_hold_its_frame() -> None:
    video = opened()
    video.add(frame=0, object=1, box=BOX)

    for result in video.track(end=2, images=True):
        assert result.image is not None
        np.testing.assert_array_equal(result.image, scenes.frame(result.index))
        assert result.drawn().shape == result.image.shape


@pytest.mark.parametrize(("side", "ahead"), [(128, 3), (512, 3), (1024, 1), (4096, 1)])
def test_large_frames_wait_one_at_a_time(
    side: int, ahead: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    monkeypatch.setattr(feed, "Prefetcher", lambda *_, **options: asked.append(options["ahead"]))
    how, buffers = SimpleNamespace(size=side), SimpleNamespace(images=None)
    model: Any = SimpleNamespace(preprocessing=how, buffers=buffers)
    source: Any = SimpleNamespace(length=9)

    feed.FrameFeed(source, model, last=None, is_reverse=False)._restart(0)

    assert asked == [ahead]

"""One frame of tracking: objects together or alone, and what is computed once."""

from collections import Counter
from collections.abc import Collection, Container
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from samgraph.predict.video import tracker
from samgraph.predict.video.memory_bank import Choice, Moment, ReferencePolicy
from samgraph.predict.video.object_prompts import squeezed_mask
from samgraph.predict.video.overlaps import without_overlaps
from samgraph.predict.video.tracker import Tracker
from samgraph.predict.video.video import Video, open_video
from tests.golden import scenes
from tests.predict.models import tiny_model

POINTS = [(40, 50), (118, 84), (20, 100), (60, 20), (80, 60)]


def with_objects(count: int, **options: Any) -> Video:
    video = open_video(tiny_model(), scenes.frames(4), memory_precision="fp32", **options)
    for name, point in enumerate(POINTS[:count], start=1):
        video.add(frame=0, object=name, points=[point])
    return video


def test_objects_run_together_are_found_as_if_alone() -> None:
    together = list(with_objects(3).track())
    alone = list(with_objects(3, objects_at_once=1).track())

    for one, other in zip(together, alone, strict=True):
        np.testing.assert_allclose(one.low_logits, other.low_logits, atol=1e-3)
        np.testing.assert_allclose(one.object_scores, other.object_scores, atol=1e-3)


def test_objects_do_not_see_each_other() -> None:
    one = [result.low_logits[0] for result in with_objects(1).track()]
    three = [result.low_logits[0] for result in with_objects(3).track()]

    np.testing.assert_allclose(one, three, atol=1e-3)


@pytest.mark.parametrize(("count", "runs"), [(3, 1), (4, 1), (5, 2)])
def test_a_frame_is_encoded_once_and_objects_run_in_batches(
    monkeypatch: pytest.MonkeyPatch, count: int, runs: int
) -> None:
    video = with_objects(count)
    core = video.follower.tracker.core
    calls: Counter[str] = Counter()
    run = core.run

    def counted(name: str, **inputs: Any) -> Any:
        calls[name] += 1
        return run(name, **inputs)

    monkeypatch.setattr(core, "run", counted)
    list(video.track(end=2))

    # One call for the memory of the prompted frame; then one a frame and batch.
    assert calls == {
        "image_encoder": 2,
        "memory_attention": 2 * runs,
        "decode": 2 * runs,
        "memory_encoder": 1 + 2 * runs,
    }


def test_large_memories_are_attended_to_one_after_another(monkeypatch: pytest.MonkeyPatch) -> None:
    together = list(with_objects(3).track())
    video = with_objects(3)
    core = video.follower.tracker.core
    rows: list[int] = []
    run = core.run

    def watched(name: str, **inputs: Any) -> Any:
        if name == "memory_attention":
            rows.append(len(inputs["memory"]))
        return run(name, **inputs)

    # Room for three objects that remember one frame, or for one that remembers two or three.
    monkeypatch.setattr(tracker, "CELLS_AT_ONCE", 3 * core.config.grid**2)
    monkeypatch.setattr(core, "run", watched)
    apart = list(video.track())

    assert rows == [3, 1, 1, 1, 1, 1, 1]
    for one, other in zip(together, apart, strict=True):
        np.testing.assert_allclose(one.low_logits, other.low_logits, atol=1e-3)


def test_objects_with_memories_of_different_length_run_apart() -> None:
    video = with_objects(2)
    video.add(frame=2, object=1, points=[(60, 52)])

    results = list(video.track())

    assert [len(result) for result in results] == [2] * 4


def test_memory_is_stored_as_asked() -> None:
    for precision, dtype in (("bf16", ml_dtypes.bfloat16), ("fp32", np.float32)):
        tracker = Tracker(tiny_model(), memory_precision=precision)  # type: ignore[arg-type]  # one of the two
        features = tracker.encode(np.zeros((3, 128, 128), np.float32))
        outcome = tracker.paint(features, np.ones((128, 128), np.bool_))

        (memory,) = tracker.remember(features, [outcome], is_prompted=True)

        assert memory.dtype == dtype
        assert memory.shape == (64, 64)


def test_an_empty_mask_is_a_hidden_object() -> None:
    tracker = Tracker(tiny_model())
    features = tracker.encode(np.zeros((3, 128, 128), np.float32))

    outcome = tracker.paint(features, np.zeros((128, 128), np.bool_))

    assert outcome.score == -10
    np.testing.assert_array_equal(outcome.pointer, tiny_model().hidden_pointer[0])


class OnlyPrompted(ReferencePolicy):
    """A policy somebody might write: tracked frames are never looked at."""

    def choose(self, moment: Moment, prompted: Collection[int], tracked: Container[int]) -> Choice:
        return ReferencePolicy.choose(self, moment, prompted, ())


def test_another_policy_can_be_written() -> None:
    usual, own = with_objects(1), with_objects(1, policy=OnlyPrompted())

    pairs = list(zip(usual.track(), own.track(), strict=True))

    np.testing.assert_array_equal(pairs[1][0].low_logits, pairs[1][1].low_logits)
    assert not np.array_equal(pairs[3][0].object_scores, pairs[3][1].object_scores)


def test_where_masks_overlap_the_highest_logit_wins() -> None:
    logits = np.array([[[3.0, -1.0, 5.0]], [[4.0, -2.0, 5.0]]], np.float32)

    apart = without_overlaps(logits)

    assert apart.tolist() == [[[-10.0, -1.0, 5.0]], [[4.0, -10.0, -10.0]]]
    assert without_overlaps(logits[:1]) is not None


def test_a_mask_is_squeezed_onto_the_input_of_the_model() -> None:
    mask = np.zeros((60, 90), np.bool_)
    mask[:30, :45] = True

    squeezed = squeezed_mask(mask, 128)

    assert squeezed.shape == (128, 128)
    assert squeezed[:63, :63].all()
    assert not squeezed[65:].any()
    assert squeezed_mask(squeezed, 128) is squeezed

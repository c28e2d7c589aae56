"""One frame of tracking: objects together or alone, and what is computed once."""

import sys
from collections import Counter
from collections.abc import Collection, Container
from pathlib import Path
from types import FrameType
from typing import Any, cast

import ml_dtypes
import numpy as np
import pytest

import samgraph
from samgraph.models.family import BankRead, Features
from samgraph.predict.video.policy import Position, ReferencePolicy, Selection
from samgraph.predict.video.prompts import resize_mask
from samgraph.predict.video.result import without_overlaps
from samgraph.predict.video.step import paint
from samgraph.predict.video.video import Video, open_video
from tests.golden import scenes
from tests.predict.counting import CountingBuffers, counting_model
from tests.predict.models import tiny_model
from tests.predict.watching import Watched

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
    core: Any = video.model
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
        "prepare_frame": 2,
        "attend_prepared_fp32": 2 * runs,
        "decode": 2 * runs,
        "memory_encoder": 1 + 2 * runs,
    }


def test_large_memories_are_attended_to_one_after_another() -> None:
    together = list(with_objects(3).track())
    video = with_objects(3)
    rows: list[int] = []
    attend = video.model.attend

    def watched(features: Features, read: BankRead) -> Features:
        rows.append(len(read.frames))
        return attend(features, read)

    # Room for three objects that remember one frame, or for one that remembers two or three.
    tokens = 3 * video.model.memory_layout.tokens
    session = Watched(video.model.session, attention_tokens=tokens)
    video.model = cast(Any, Watched(video.model, attend=watched, session=session))
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
        video = open_video(tiny_model(), scenes.frames(2), memory_precision=precision)
        video.add(frame=0, object=1, mask=np.ones(video.size_hw, np.bool_))
        list(video.track())

        stored: Any = video.pool.masks.buffer
        assert stored.dtype == dtype
        assert stored.shape[1:] == (64, 64)


def test_an_empty_mask_is_an_absent_object() -> None:
    model = tiny_model()
    features = model.encode(np.zeros((1, 3, 128, 128), np.float32))

    outcome = paint(model, features, np.zeros((128, 128), np.bool_))

    assert outcome.score[0] == -10
    assert outcome.pointer[:].tolist() == model.absent_pointer[0].tolist()


def test_nothing_leaves_the_device_until_it_is_asked_for() -> None:
    """One image in per tracked frame, and what says which pages to read; nothing out."""
    model = counting_model()
    buffers = model.buffers
    assert isinstance(buffers, CountingBuffers)
    video = open_video(model, scenes.frames(4))
    video.add(frame=0, object=1, points=[POINTS[0]])
    video.add(frame=0, object=2, points=[POINTS[1]])
    results = video.track()
    next(results)
    next(results)
    buffers.clear()

    result = next(results)

    assert buffers.downloaded == []
    large = [shape for shape, _ in buffers.uploaded if np.prod(shape) > 100]
    assert large == [(1, 3, 128, 128)]
    assert result.masks.shape == (2, scenes.HEIGHT, scenes.WIDTH)
    assert sorted(set(buffers.downloaded)) == [(2,), (32, 32)]


class OnlyPrompted(ReferencePolicy):
    """A policy somebody might write: tracked frames are never attended to."""

    def choose(
        self, position: Position, prompted: Collection[int], tracked: Container[int]
    ) -> Selection:
        return ReferencePolicy.choose(self, position, prompted, ())


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

    squeezed = resize_mask(mask, 128)

    assert squeezed.shape == (128, 128)
    assert squeezed[:63, :63].all()
    assert not squeezed[65:].any()
    assert resize_mask(squeezed, 128) is squeezed


def test_a_tracked_frame_is_one_straight_path() -> None:
    """Few calls of few functions, with a full bank and nobody looking at the masks."""
    video = open_video(tiny_model(), [scenes.frame(i % 10) for i in range(24)])
    video.add(frame=0, object=1, points=[POINTS[0]])
    results = video.track()
    for _ in range(20):
        next(results)
    calls: Counter[str] = Counter()
    package = Path(samgraph.__file__).parent  # not a checkout of that name, with its packages

    def watch(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and Path(code.co_filename).is_relative_to(package):
            calls[f"{code.co_filename}:{code.co_qualname}"] += 1

    sys.setprofile(watch)
    try:
        next(results)
    finally:
        sys.setprofile(None)

    assert sum(calls.values()) <= 120
    assert len(calls) <= 60, "\n".join(sorted(calls))

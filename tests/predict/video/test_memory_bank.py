"""The memory bank: what a frame reads, what is forgotten, and that nothing else is."""

import ml_dtypes
import numpy as np
import pytest

from samgraph.errors import OptionError
from samgraph.models.sam2.config import CONFIGS
from samgraph.predict.video.memory_bank import (
    Memory,
    MemoryBank,
    Moment,
    ReferencePolicy,
    checked_precision,
    recall,
)

POLICY = ReferencePolicy()


def memory(frame: int) -> Memory:
    return Memory(np.full((4, 2), frame, np.float32), np.full(3, frame, np.float32))


def masks(
    policy: ReferencePolicy, moment: Moment, prompted: list[int], tracked: range
) -> list[tuple[int, int]]:
    return [(read.frame, read.slot) for read in policy.choose(moment, prompted, tracked).masks]


def pointers(
    policy: ReferencePolicy, moment: Moment, prompted: list[int], tracked: range
) -> list[tuple[int, int]]:
    choice = policy.choose(moment, prompted, tracked)
    return [(read.frame, read.distance) for read in choice.pointers]


def test_prompted_frames_come_first_then_the_last_six_from_the_oldest() -> None:
    found = masks(POLICY, Moment(10), [0], range(1, 10))

    assert found == [(0, 6), (4, 5), (5, 4), (6, 3), (7, 2), (8, 1), (9, 0)]


def test_pointers_are_those_of_prompted_frames_then_fifteen_nearest_first() -> None:
    found = pointers(POLICY, Moment(20), [0], range(1, 20))

    assert found == [(0, 20), *((20 - t, t) for t in range(1, 16))]


def test_prompted_frames_of_the_future_lend_their_mask_but_not_their_pointer() -> None:
    assert masks(POLICY, Moment(2), [5], range(2)) == [(5, 6), (0, 1), (1, 0)]
    assert pointers(POLICY, Moment(2), [5], range(2)) == [(1, 1), (0, 2)]


def test_backward_everything_is_mirrored() -> None:
    moment = Moment(3, is_reverse=True)

    assert masks(POLICY, moment, [8], range(4, 8)) == [(8, 6), (7, 3), (6, 2), (5, 1), (4, 0)]
    assert pointers(POLICY, moment, [8], range(4, 8)) == [(8, 5), (4, 1), (5, 2), (6, 3), (7, 4)]
    assert pointers(POLICY, moment, [1], range(4, 8))[0] == (4, 1)


@pytest.mark.parametrize(("length", "longest"), [(None, 15), (100, 15), (10, 9), (1, 1)])
def test_pointers_are_dated_in_units_of_a_short_video(length: int | None, longest: int) -> None:
    choice = POLICY.choose(Moment(5, length=length), [0], range(1, 5))

    assert choice.longest == longest


def test_a_short_video_has_fewer_pointers() -> None:
    assert len(pointers(POLICY, Moment(3, length=4), [0], range(1, 3))) == 3
    assert len(pointers(POLICY, Moment(9, length=4), [0], range(1, 9))) == 4


def test_with_a_limit_the_nearest_prompted_frames_are_read_and_others_count_as_tracked() -> None:
    policy = ReferencePolicy(max_prompted=2)

    assert masks(policy, Moment(10), [0, 8, 9, 30], range(0)) == [(9, 6), (30, 6), (8, 1)]
    assert pointers(policy, Moment(10), [0, 8, 9, 30], range(0)) == [(9, 1), (8, 2), (0, 10)]


def test_with_a_stride_every_second_frame_is_read_and_the_last() -> None:
    policy = ReferencePolicy(stride=2)

    assert masks(policy, Moment(13), [0], range(1, 13)) == [
        (0, 6), (2, 5), (4, 4), (6, 3), (8, 2), (10, 1), (12, 0)
    ]  # fmt: skip
    assert masks(policy, Moment(7, True), [20], range(8, 20)) == [
        (20, 6), (18, 5), (16, 4), (14, 3), (12, 2), (10, 1), (8, 0)
    ]  # fmt: skip


@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("is_reverse", [False, True])
@pytest.mark.parametrize("max_prompted", [None, 2])
def test_forgetting_changes_nothing_that_is_read(
    stride: int, is_reverse: bool, max_prompted: int | None
) -> None:
    policy = ReferencePolicy(stride=stride, max_prompted=max_prompted)
    whole, thrifty = MemoryBank(), MemoryBank()
    start = 60 if is_reverse else 0
    back = -1 if is_reverse else 1
    for bank in (whole, thrifty):
        bank.remember_prompted(start, memory(start))

    for step in range(1, 50):
        now = start + step * back
        moment = Moment(now, is_reverse)
        one, other = whole.recall(policy, moment), thrifty.recall(policy, moment)
        assert one.slots == other.slots
        assert one.times == other.times
        assert [mask[0, 0] for mask in one.masks] == [mask[0, 0] for mask in other.masks]
        for bank in (whole, thrifty):
            bank.remember(now, memory(now))
        thrifty.forget(policy, [Moment(now, is_reverse)])

    assert len(whole.tracked) == 49
    assert len(thrifty.tracked) <= 16 + 5 * stride
    assert sum(one.mask is not None for one in thrifty.tracked.values()) <= 8


def test_a_mask_that_is_dropped_comes_back_once_with_its_pointer() -> None:
    bank = MemoryBank()
    for frame in range(10):
        bank.remember(frame, memory(frame))

    first = bank.forget(POLICY, [Moment(10)])
    second = bank.forget(POLICY, [Moment(10)])

    assert [frame for frame, _ in first] == [0, 1, 2, 3]
    assert all(one.mask is not None for _, one in first)
    assert second == []


def test_prompting_a_tracked_frame_replaces_what_was_tracked() -> None:
    bank = MemoryBank()
    bank.remember(4, memory(4))

    bank.remember_prompted(4, memory(40))

    assert 4 not in bank.tracked
    assert bank.prompted[4].pointer[0] == 40


def test_what_was_only_a_pointer_is_left_out_of_the_masks() -> None:
    choice = POLICY.choose(Moment(3), [0], range(1, 3))
    only_pointer = Memory(None, np.zeros(3, np.float32))

    found = recall(choice, lambda frame, _: only_pointer if frame == 1 else memory(frame))

    assert found.slots == (6, 0)
    assert len(found.pointers) == 3


def test_a_policy_is_made_for_its_model() -> None:
    assert ReferencePolicy.of(CONFIGS["sam2.1-tiny"]) == ReferencePolicy()
    assert not ReferencePolicy.of(CONFIGS["sam2-tiny"]).is_signed


def test_memory_is_stored_in_one_of_two_precisions() -> None:
    assert checked_precision("bf16") == ml_dtypes.bfloat16
    assert checked_precision("fp32") == np.float32
    with pytest.raises(OptionError, match="fp16"):
        checked_precision("fp16")


@pytest.mark.parametrize("options", [{"max_prompted": 1}, {"stride": 0}])
def test_senseless_options_are_refused(options: dict[str, int]) -> None:
    with pytest.raises(OptionError):
        ReferencePolicy(**options)  # type: ignore[arg-type]  # whole numbers, as they should be

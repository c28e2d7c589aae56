"""The memory bank: what a frame reads, what is forgotten, and that nothing else is."""

import ml_dtypes
import numpy as np
import pytest

from samgraph.engines.buffers import HOST_BUFFERS
from samgraph.errors import OptionError
from samgraph.models.family import MemoryLayout
from samgraph.models.sam2.config import CONFIGS
from samgraph.predict.video.bank import PAGES, Memory, MemoryBank, MemoryPool, Recalled
from samgraph.predict.video.policy import Position, ReferencePolicy

POLICY = ReferencePolicy()
LAYOUT = MemoryLayout(tokens=4, channels=2, pointer_channels=3)


def new_pool() -> MemoryPool:
    return MemoryPool(HOST_BUFFERS, LAYOUT, "fp32")


def memory(pool: MemoryPool, frame: int) -> Memory:
    masks = np.full((1, 4, 2), frame, np.float32)
    return pool.store(masks, np.full((1, 3), frame, np.float32))[0]


def stored_masks(pool: MemoryPool, recalled: Recalled) -> list[float]:
    """The frame that was written into each page that is read."""
    return [float(pool.masks.buffer[row, 0, 0]) for row in recalled.frames]


def masks(
    policy: ReferencePolicy, position: Position, prompted: list[int], tracked: range
) -> list[tuple[int, int]]:
    found = policy.choose(position, prompted, tracked).masks
    return [(frame, slot) for frame, slot, _ in found]


def pointers(
    policy: ReferencePolicy, position: Position, prompted: list[int], tracked: range
) -> list[tuple[int, int]]:
    found = policy.choose(position, prompted, tracked).pointers
    return [(frame, distance) for frame, distance, _ in found]


def test_prompted_frames_come_first_then_the_last_six_from_the_oldest() -> None:
    found = masks(POLICY, Position(10), [0], range(1, 10))

    assert found == [(0, 6), (4, 5), (5, 4), (6, 3), (7, 2), (8, 1), (9, 0)]


def test_pointers_are_those_of_prompted_frames_then_fifteen_nearest_first() -> None:
    found = pointers(POLICY, Position(20), [0], range(1, 20))

    assert found == [(0, 20), *((20 - t, t) for t in range(1, 16))]


def test_prompted_frames_of_the_future_lend_their_mask_but_not_their_pointer() -> None:
    assert masks(POLICY, Position(2), [5], range(2)) == [(5, 6), (0, 1), (1, 0)]
    assert pointers(POLICY, Position(2), [5], range(2)) == [(1, 1), (0, 2)]


def test_backward_everything_is_mirrored() -> None:
    position = Position(3, is_reverse=True)

    assert masks(POLICY, position, [8], range(4, 8)) == [(8, 6), (7, 3), (6, 2), (5, 1), (4, 0)]
    assert pointers(POLICY, position, [8], range(4, 8)) == [(8, 5), (4, 1), (5, 2), (6, 3), (7, 4)]
    assert pointers(POLICY, position, [1], range(4, 8))[0] == (4, 1)


@pytest.mark.parametrize(("length", "longest"), [(None, 15), (100, 15), (10, 9), (1, 1)])
def test_pointers_are_dated_in_units_of_a_short_video(length: int | None, longest: int) -> None:
    choice = POLICY.choose(Position(5, length=length), [0], range(1, 5))

    assert choice.longest == longest


def test_a_short_video_has_fewer_pointers() -> None:
    assert len(pointers(POLICY, Position(3, length=4), [0], range(1, 3))) == 3
    assert len(pointers(POLICY, Position(9, length=4), [0], range(1, 9))) == 4


def test_with_a_limit_the_nearest_prompted_frames_are_read_and_others_count_as_tracked() -> None:
    policy = ReferencePolicy(max_prompted=2)

    assert masks(policy, Position(10), [0, 8, 9, 30], range(0)) == [(9, 6), (30, 6), (8, 1)]
    assert pointers(policy, Position(10), [0, 8, 9, 30], range(0)) == [(9, 1), (8, 2), (0, 10)]


def test_of_one_prompted_frame_that_where_the_track_began_is_read() -> None:
    policy = ReferencePolicy(max_prompted=1)

    assert masks(policy, Position(10), [8, 0, 30], range(6, 10)) == [
        (0, 6), (6, 3), (7, 2), (8, 1), (9, 0)
    ]  # fmt: skip
    assert pointers(policy, Position(10), [8, 0, 30], range(9, 10)) == [(0, 10), (9, 1), (8, 2)]
    assert masks(policy, Position(20, True), [8, 30, 40], range(0)) == [(40, 6)]
    assert masks(policy, Position(5), [8, 30], range(0)) == [(8, 6)]
    assert policy.keeps_prompted(0, Position(40), [0, 8, 39])
    assert not policy.keeps_prompted(8, Position(40), [0, 8, 39])


def test_with_a_stride_every_second_frame_is_read_and_the_last() -> None:
    policy = ReferencePolicy(stride=2)

    assert masks(policy, Position(13), [0], range(1, 13)) == [
        (0, 6), (2, 5), (4, 4), (6, 3), (8, 2), (10, 1), (12, 0)
    ]  # fmt: skip
    assert masks(policy, Position(7, True), [20], range(8, 20)) == [
        (20, 6), (18, 5), (16, 4), (14, 3), (12, 2), (10, 1), (8, 0)
    ]  # fmt: skip


@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("is_reverse", [False, True])
@pytest.mark.parametrize("max_prompted", [None, 2])
def test_forgetting_changes_nothing_that_is_read(
    stride: int, is_reverse: bool, max_prompted: int | None
) -> None:
    policy = ReferencePolicy(stride=stride, max_prompted=max_prompted)
    pool, whole, thrifty = new_pool(), MemoryBank(), MemoryBank()
    start = 60 if is_reverse else 0
    back = -1 if is_reverse else 1
    for bank in (whole, thrifty):
        bank.remember_prompted(start, memory(pool, start))

    for step in range(1, 50):
        now = start + step * back
        position = Position(now, is_reverse)
        one, other = (
            bank.recall(policy.choose(position, bank.prompted, bank.tracked))
            for bank in (whole, thrifty)
        )
        assert one.slots == other.slots
        assert one.times == other.times
        assert stored_masks(pool, one) == stored_masks(pool, other)
        for bank in (whole, thrifty):
            bank.tracked[now] = memory(pool, now)
        thrifty.forget(policy, [Position(now, is_reverse)])

    assert len(whole.tracked) == 49
    assert len(thrifty.tracked) <= 16 + 5 * stride
    assert sum(one.mask is not None for one in thrifty.tracked.values()) <= 8


def test_a_mask_that_is_dropped_comes_back_once_with_its_pointer() -> None:
    pool, bank = new_pool(), MemoryBank()
    for frame in range(10):
        bank.tracked[frame] = memory(pool, frame)

    first = bank.forget(POLICY, [Position(10)])
    second = bank.forget(POLICY, [Position(10)])

    assert [frame for frame, _ in first] == [0, 1, 2, 3]
    assert all(one.mask is not None for _, one in first)
    assert second == []


def test_prompting_a_tracked_frame_replaces_what_was_tracked() -> None:
    pool, bank = new_pool(), MemoryBank()
    bank.tracked[4] = memory(pool, 4)

    bank.remember_prompted(4, memory(pool, 40))

    assert 4 not in bank.tracked
    assert bank.prompted[4].pointer.buffer[0, 0] == 40


def test_what_was_only_a_pointer_is_left_out_of_the_masks() -> None:
    pool, bank = new_pool(), MemoryBank()
    bank.remember_prompted(0, memory(pool, 0))
    bank.tracked[1] = Memory(None, memory(pool, 1).pointer)
    bank.tracked[2] = memory(pool, 2)

    found = bank.recall(POLICY.choose(Position(3), bank.prompted, bank.tracked))

    assert found.slots == (6, 0)
    assert stored_masks(pool, found) == [0, 2]
    assert len(found.pointers) == 3


def test_a_frame_among_both_counts_as_prompted() -> None:
    assert masks(POLICY, Position(3), [2], range(3)) == [(2, 6), (0, 2), (1, 1)]
    assert pointers(POLICY, Position(3), [2], range(3)) == [(2, 1), (1, 2), (0, 3)]


def test_storing_is_one_write_and_reading_copies_nothing() -> None:
    pool = new_pool()
    kept = [memory(pool, frame) for frame in range(3)]
    buffer = pool.masks.buffer
    pages = [one.mask.row for one in kept if one.mask is not None]
    recalled = Recalled(tuple(pages), (6, 1, 0), (kept[0].pointer.row,), (0.5,), (3, 1))

    read = pool.read([recalled])

    assert read.pages is buffer
    assert read.pages[read.frames[0], 0, 0].tolist() == [0, 1, 2]
    assert read.pointer_rows is pool.pointers.buffer


def test_a_page_is_free_again_when_nobody_refers_to_it() -> None:
    pool = new_pool()
    first = memory(pool, 1)
    row = first.mask.row if first.mask is not None else -1

    del first
    again = memory(pool, 2)

    assert again.mask is not None
    assert again.mask.row == row
    assert len(pool.masks.buffer) == PAGES


def test_a_pool_grows_and_keeps_what_it_holds() -> None:
    pool = new_pool()

    kept = [memory(pool, frame) for frame in range(2 * PAGES + 3)]

    assert [one.mask.buffer[0, 0, 0] for one in kept if one.mask is not None] == [
        float(frame) for frame in range(2 * PAGES + 3)
    ]
    assert len({one.mask.row for one in kept if one.mask is not None}) == len(kept)
    assert len(pool.masks.buffer) == 3 * PAGES


def test_a_policy_is_made_for_its_model() -> None:
    assert ReferencePolicy.of(CONFIGS["sam2.1-tiny"]) == ReferencePolicy()
    assert not ReferencePolicy.of(CONFIGS["sam2-tiny"]).is_signed


def test_memory_is_stored_in_one_of_two_precisions() -> None:
    half, full = MemoryPool(HOST_BUFFERS, LAYOUT, "bf16"), new_pool()

    assert np.asarray(half.masks.buffer).dtype == ml_dtypes.bfloat16
    assert np.asarray(full.masks.buffer).dtype == np.float32
    with pytest.raises(OptionError, match="fp16"):
        MemoryPool(HOST_BUFFERS, LAYOUT, "fp16")  # type: ignore[arg-type]  # what is refused


@pytest.mark.parametrize("options", [{"max_prompted": 0}, {"stride": 0}])
def test_senseless_options_are_refused(options: dict[str, int]) -> None:
    with pytest.raises(OptionError):
        ReferencePolicy(**options)  # type: ignore[arg-type]  # whole numbers, as they should be

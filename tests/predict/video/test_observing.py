"""A step whose masks are chosen: all of an outcome belongs to the mask that was."""

import numpy as np
import pytest

from samgraph.predict.video.bank import MemoryPool, Recalled
from samgraph.predict.video.observing import step_observed
from samgraph.predict.video.policies.history import Candidates
from tests.predict.colour_model import ColourModel, draw

FRAME = draw((12, 20, 6, (200, 40, 40)), (30, 40, 5, (180, 60, 40)), (50, 20, 4, (40, 200, 40)))


@pytest.mark.parametrize("choice", [0, 1, 2])
def test_an_outcome_is_that_of_the_chosen_mask(choice: int) -> None:
    model = ColourModel()
    features = model.encode(FRAME.transpose(2, 0, 1)[None] / np.float32(255))
    pool = MemoryPool(model.buffers, model.memory_layout, "fp32")
    memory = np.array([[[0.78, 0.16, 0.16, 1.0]]] * 2, np.float32)
    stored = pool.store(memory, np.zeros((2, 2), np.float32))
    recalled: list[Recalled] = []
    for one in stored:
        row = one.mask.row if one.mask is not None else -1
        recalled.append(Recalled((row,), (6,), (one.pointer.row,), (0.0,), (1, 1)))
    seen: dict[int, Candidates] = {}

    def choose(place: int, candidates: Candidates) -> int:
        seen[place] = candidates
        return choice

    found = step_observed(model, features, pool, recalled, 4, choose, compares_masks=True)

    offered = model.decode_alternatives(model.attend(features, pool.read(recalled)), 2)
    for row, (outcome, kept) in enumerate(found):
        np.testing.assert_array_equal(outcome.logits, offered.masks[row, choice])
        np.testing.assert_array_equal(outcome.pointer, offered.pointers[row, choice])
        np.testing.assert_array_equal(outcome.iou, offered.ious[row, choice : choice + 1])
        np.testing.assert_array_equal(kept.pointer.buffer[0], outcome.pointer)
        assert seen[row].areas[choice] == np.count_nonzero(np.asarray(outcome.logits) > 0)
    assert len({float(one) for one in seen[0].ious}) == 3

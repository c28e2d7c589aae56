"""Boundary IoU, and the scenes it is measured on."""

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from training.losses import overlap  # noqa: E402
from training.measure import boundary_overlap, drawn_solids, exact  # noqa: E402


def square(left: int, side: int) -> Any:
    mask = torch.zeros(1, 256, 256)
    mask[:, 60 : 60 + side, left : left + side] = 1
    return mask


def logits(mask: Any) -> Any:
    return (mask * 2 - 1)[:, None]


def test_only_what_is_near_the_edges_counts() -> None:
    truth, moved = square(60, 100), square(62, 100)
    holed = truth.clone()
    holed[:, 100:120, 100:120] = 0  # far from the edge of the truth

    assert boundary_overlap(logits(truth), truth).item() == 1
    whole, edge = overlap(logits(moved), truth).item(), boundary_overlap(logits(moved), truth)
    assert whole == pytest.approx(98 / 102)
    rim = 100**2 - 86**2  # seven pixels wide
    inner = 98 * 100 - 84 * 86  # what two rims, two pixels apart, share at most
    assert 0.5 < edge.item() <= inner / rim
    assert 0.4 < boundary_overlap(logits(holed), truth).item() < 1
    assert boundary_overlap(logits(1 - truth), truth).item() < 0.02


def test_a_mask_at_the_border_has_an_edge_there() -> None:
    whole = torch.ones(1, 256, 256)
    ring = whole.clone()
    ring[:, 7:-7, 7:-7] = 0

    assert boundary_overlap(logits(ring), whole).item() == 1


def test_an_answer_with_the_truth_is_perfect_on_solids() -> None:
    photos = torch.full((2, 3, 64, 64), 120, dtype=torch.uint8)
    pictures, masks = drawn_solids(photos, 2)

    found = exact(lambda _: lambda *__: logits((masks > 127).float()), pictures, masks)

    assert found == {"IoU": 1.0, "boundary IoU": 1.0}

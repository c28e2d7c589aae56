"""Non-maximum suppression of boxes in torch's functions, without a wait per box.

Boxes are sorted by score, and a box falls if one that is kept before it overlaps it. Rounds

    keep[i] = not any(keep[j] and overlaps[i, j] for j < i)

over all boxes at once, from keep = all, are right for the first n boxes after n rounds, and for all
of them as soon as a round changes nothing: a dozen rounds, where few boxes fall by a chain.
"""

import numpy as np
import torch

_BLOCK = 2048  # boxes compared with each other at once
_ROUNDS = 16  # between two looks at whether rounds still change anything


def suppress(
    boxes: torch.Tensor, scores: torch.Tensor, iou_threshold: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """boxes [K, 4], scores [K] -> the order by score [K], and whether each in that order is kept.

    To the bit what `media.mask.geometry.batched_nms` keeps of float32 boxes; ties in their order.
    """
    order = torch.sort(-scores, stable=True).indices
    columns, limit = _columns(boxes[order].float()), _below(iou_threshold)
    keep = torch.ones(len(order), dtype=torch.bool, device=boxes.device)
    for start in range(0, len(order), _BLOCK):
        own = slice(start, start + _BLOCK)
        block = columns[:, own]
        keep[own] = _greedy(_overlap(block, block, limit).tril(-1), keep[own])
        for later in range(start + _BLOCK, len(order), _BLOCK):
            part = slice(later, later + _BLOCK)
            keep[part] &= ~_falls(_overlap(columns[:, part], block, limit), keep[own])
    return order, keep


def _greedy(rivals: torch.Tensor, alive: torch.Tensor) -> torch.Tensor:
    """Which boxes are kept, given which earlier boxes [K, K] each overlaps."""
    keep = before = alive
    while True:
        for _ in range(_ROUNDS):
            before, keep = keep, alive & ~_falls(rivals, keep)
        if torch.equal(before, keep):
            return keep


def _falls(rivals: torch.Tensor, keep: torch.Tensor) -> torch.Tensor:
    """Whether each box overlaps a box that is kept."""
    return (rivals & keep).any(1)


def _columns(boxes: torch.Tensor) -> torch.Tensor:
    """Left, top, right, bottom and area: [5, K]."""
    left, top, right, bottom = boxes.unbind(1)
    return torch.stack([left, top, right, bottom, (right - left) * (bottom - top)])


def _overlap(some: torch.Tensor, others: torch.Tensor, limit: float) -> torch.Tensor:
    """Whether the intersection over union of boxes exceeds the limit: [K, J]."""
    one, other = some[:, :, None], others[:, None, :]
    width = torch.minimum(one[2], other[2]) - torch.maximum(one[0], other[0])
    height = torch.minimum(one[3], other[3]) - torch.maximum(one[1], other[1])
    common = width.clamp(min=0) * height.clamp(min=0)
    return common / (one[4] + other[4] - common) > limit


def _below(threshold: float) -> float:
    """The largest float32 up to a threshold: what exceeds one exceeds the other."""
    near = np.float32(threshold)
    return float(near if float(near) <= threshold else np.nextafter(near, np.float32(-np.inf)))

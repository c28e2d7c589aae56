"""Masks at the size of an image, in torch's functions: as bits, and measured."""

import torch
from torch.nn import functional

_PIXELS_AT_ONCE = 1 << 27


def mask_bits(logits: torch.Tensor, size_hw: tuple[int, int], threshold: float) -> torch.Tensor:
    """logits [N, h, w] -> bytes [N, H, ceil(W/8)], the first pixel in the lowest bit."""
    masks = _enlarged(logits, size_hw) > threshold
    missing = -masks.shape[2] % 8
    split = functional.pad(masks, (0, missing)).unflatten(2, (-1, 8))
    weights = 1 << torch.arange(8, dtype=torch.int32, device=logits.device)
    return (split * weights).sum(3).to(torch.uint8)


def measure(
    logits: torch.Tensor,
    size_hw: tuple[int, int],
    thresholds: tuple[float, float, float],
    wanted: torch.Tensor,
) -> torch.Tensor:
    """int64 [N, 6] of logits [N, h, w]: pixels above the highest threshold and above the lowest.

    Then the box of those above the middle one: left, top, right, bottom, the last pixels included;
    all -1 where there are none. Masks that are not `wanted` [N] count as empty. Waits for the
    device to know how many are.
    """
    found = torch.full((len(logits), 6), -1, dtype=torch.int64, device=logits.device)
    found[:, :2] = 0
    step = max(1, _PIXELS_AT_ONCE // (size_hw[0] * size_hw[1]))
    for rows in wanted.nonzero()[:, 0].split(step):
        found[rows] = _measured(logits[rows], size_hw, thresholds)
    return found


def changes(
    logits: torch.Tensor, size_hw: tuple[int, int], threshold: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Where masks begin and end: counts [N], and positions of all masks, concatenated.

    A mask is read column by column, H pixels and one that is empty; a position is the number of
    the pixel before which the mask changes.
    """
    step = max(1, _PIXELS_AT_ONCE // (size_hw[0] * size_hw[1]))
    counts, positions = [], []
    for part in logits.split(step):
        masks = _enlarged(part, size_hw) > threshold
        columns = functional.pad(masks.mT, (0, 1)).flatten(1)
        change = columns.clone()
        change[:, 1:] ^= columns[:, :-1]
        counts.append(change.sum(1))
        positions.append(change.nonzero()[:, 1])
    if not counts:
        return (torch.zeros(0, dtype=torch.int64),) * 2
    return torch.cat(counts), torch.cat(positions)


def _measured(
    logits: torch.Tensor, size_hw: tuple[int, int], thresholds: tuple[float, float, float]
) -> torch.Tensor:
    low, middle, high = thresholds
    values = _enlarged(logits, size_hw)
    core, reach = ((values > limit).sum((1, 2)) for limit in (high, low))
    inside = values > middle
    columns, rows = inside.any(1), inside.any(2)
    ends = [_ends(flags) for flags in (columns, rows)]
    (left, right), (top, bottom) = ends
    return torch.stack([core, reach, left, top, right, bottom], 1)


def _ends(flags: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The first and the last that is set in each row [N, n]; -1 where none is."""
    some, length = flags.any(1), flags.shape[1]
    numbers = flags.to(torch.uint8)
    first, last = numbers.argmax(1), length - 1 - numbers.flip(1).argmax(1)
    return torch.where(some, first, -1), torch.where(some, last, -1)


def _enlarged(logits: torch.Tensor, size_hw: tuple[int, int]) -> torch.Tensor:
    """[N, h, w] -> float32 [N, H, W], bilinear with half-pixel centres."""
    maps = logits[:, None].float()
    return functional.interpolate(maps, size_hw, mode="bilinear", align_corners=False)[:, 0]

"""Prompts as a person might give them: clicks inside, clicks on mistakes, boxes drawn roughly.

Masks are coverage 0..1 at 256 x 256, clicked on a grid of 128 x 128; points are in pixels of the
model's input. Shapes: N prompts, P points.
"""

import torch
from torch.nn import functional

from training.data import SIDE
from training.scenes import MASK, bounds

ABSENT = -2
_SCALE = SIDE / MASK
_GRID = 128


class Prompter:
    """Makes prompts, with random numbers of its own, or torch's without a seed."""

    def __init__(self, device: str, seed: int | None = None) -> None:
        self.random = None if seed is None else torch.Generator(device).manual_seed(seed)

    def click(self, region: torch.Tensor, *, careful: float = 0.5) -> torch.Tensor:
        """A point of each region [N, MASK, MASK]: well inside it, or anywhere: [N, 1, 2].

        `careful` is how often it is well inside.
        """
        region = functional.avg_pool2d(region[:, None], MASK // _GRID)[:, 0]
        noise = torch.rand(region.shape, generator=self.random, device=region.device)
        pick = torch.rand(len(region), 1, 1, generator=self.random, device=region.device)
        depth = sum(
            functional.avg_pool2d(region[:, None], k, 1, k // 2)[:, 0] for k in (3, 7, 15, 31, 63)
        )
        score = torch.where(pick < careful, depth + 1e-3 * noise, noise) * region
        place = score.flatten(1).argmax(1)
        xy = torch.stack([place % _GRID, place // _GRID], 1).float()
        return ((xy + 0.5) * (SIDE / _GRID) - 0.5)[:, None]

    def correction(
        self, logits: torch.Tensor, target: torch.Tensor, *, careful: float = 0.5
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """A click on a mistake, and its label: 1 where something was missed, 0 where too much."""
        found, wanted = logits[:, 0] > 0, target > 0.5
        missed, extra = (wanted & ~found).float(), (found & ~wanted).float()
        is_missed = _largest(missed) >= _largest(extra)
        region = torch.where(is_missed[:, None, None], missed, extra)
        nothing = region.flatten(1).sum(1) == 0
        point = self.click(torch.where(nothing[:, None, None], target, region), careful=careful)
        return point, (is_missed | nothing).long()[:, None]

    def box(self, target: torch.Tensor, *, rough: float = 0.06) -> torch.Tensor:
        """Two corners around each mask [N, MASK, MASK]: [N, 2, 2]."""
        low, high = bounds(target > 0.5)
        low, high = low.where(high > 0, 0), high.where(high > 0, MASK)  # all, round nothing
        corners = torch.stack([low, high], 1).float() * _SCALE
        size = (corners[:, 1:] - corners[:, :1]).clamp(min=_SCALE)
        shake = torch.randn(corners.shape, generator=self.random, device=target.device)
        return (corners + (shake * rough).clamp(-0.15, 0.15) * size).clamp(0, SIDE) - 0.5


def _largest(region: torch.Tensor) -> torch.Tensor:
    """How thick a region is where it is thickest, roughly: [N]."""
    small = functional.avg_pool2d(region[:, None], MASK // _GRID)
    return functional.avg_pool2d(small, 7, 1, 3).flatten(1).amax(1)

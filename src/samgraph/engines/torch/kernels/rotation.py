"""The angles of axial RoPE as a small table: [2, side, D/4] cosines and sines of a position.

A pair of channels is rotated by the column or by the row of its token, so one table of
positions times frequencies serves both, whatever the number of tokens.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch

Pair = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Rotation:
    """What is rotated: the first `columns`, in heads of `width`; of every `tokens` rows, `rotary`.

    The rows of a sequence are frames of `grid` (height, width) cells, then unrotated tokens.
    """

    grid: Pair
    theta: float
    width: int
    columns: int
    tokens: int
    rotary: int

    @property
    def frequencies(self) -> int:
        """How many angles there are for each axis of the grid."""
        return self.width // 4

    def table(self, device: torch.device) -> torch.Tensor:
        """Cosines, then sines: [2, side, frequencies]."""
        return _table(max(self.grid), self.width, self.theta, device)


@lru_cache(maxsize=16)
def _table(side: int, width: int, theta: float, device: torch.device) -> torch.Tensor:
    speed = theta ** (-np.arange(0, width, 4) / width)
    angles = np.outer(np.arange(side), speed)
    both = np.stack([np.cos(angles), np.sin(angles)]).astype(np.float32)
    return torch.from_numpy(both).to(device)

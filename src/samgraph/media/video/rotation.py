"""The display matrix of a video as an orientation.

The matrix maps a pixel's position (x, y) to (a x + c y, b x + d y), in units of 1/65536. Only
rotations by multiples of 90 degrees, with or without mirroring, are applied.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from samgraph.media.image.reading import Rgb

# Rotations that a program rounded from degrees are a little off: cos(89.5) is 0.009.
SLACK = 0.02


@dataclass(frozen=True, slots=True)
class Orientation:
    """Swap rows and columns, then reverse the rows, the columns, or both."""

    swaps: bool = False
    reverses_rows: bool = False
    reverses_columns: bool = False

    def applied_to(self, pixels: Rgb) -> Rgb:
        """The upright image, [H, W, 3]."""
        upright = pixels.transpose(1, 0, 2) if self.swaps else pixels
        upright = upright[::-1] if self.reverses_rows else upright
        upright = upright[:, ::-1] if self.reverses_columns else upright
        return np.ascontiguousarray(upright)


def orientation_of(frame: Any) -> Orientation:
    """The orientation in a decoded frame's display matrix; identity without one."""
    data = frame.side_data.get("DISPLAYMATRIX")
    raw = b"" if data is None else bytes(data)
    if len(raw) < 36:
        return Orientation()
    a, b, _, c, d = (int(value) for value in np.frombuffer(raw, "=i4")[:5])
    along, across = min(abs(a), abs(d)), min(abs(b), abs(c))
    if max(abs(b), abs(c)) <= SLACK * along and along:
        return Orientation(False, d < 0, a < 0)
    if max(abs(a), abs(d)) <= SLACK * across and across:
        return Orientation(True, b < 0, c < 0)
    return Orientation()

"""How a frame must be turned to be upright: the display matrix of a video.

The matrix takes the place (x, y) of a pixel to (a x + c y, b x + d y), in units of 1/65536. Only
steps of a quarter turn, with or without mirroring, are taken; other angles are left alone.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from samgraph.media.image.reading import Rgb

# A quarter turn written in degrees by a program can be a little off: cos(89.5) is 0.009.
SLACK = 0.02


@dataclass(frozen=True, slots=True)
class Turn:
    """Swap rows and columns, then reverse the rows, the columns, or both."""

    swaps: bool = False
    reverses_rows: bool = False
    reverses_columns: bool = False

    def applied_to(self, pixels: Rgb) -> Rgb:
        """The upright image, [H, W, 3]."""
        turned = pixels.transpose(1, 0, 2) if self.swaps else pixels
        turned = turned[::-1] if self.reverses_rows else turned
        turned = turned[:, ::-1] if self.reverses_columns else turned
        return np.ascontiguousarray(turned)


def turn_of(frame: Any) -> Turn:
    """The turn that a decoded frame asks for."""
    data = frame.side_data.get("DISPLAYMATRIX")
    raw = b"" if data is None else bytes(data)
    if len(raw) < 36:
        return Turn()
    a, b, _, c, d = (int(value) for value in np.frombuffer(raw, "=i4")[:5])
    along, across = min(abs(a), abs(d)), min(abs(b), abs(c))
    if max(abs(b), abs(c)) <= SLACK * along and along:
        return Turn(False, d < 0, a < 0)
    if max(abs(a), abs(d)) <= SLACK * across and across:
        return Turn(True, b < 0, c < 0)
    return Turn()

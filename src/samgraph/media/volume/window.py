"""Windows: which values become black and which white.

A window is a level and a width, as radiologists give it: values from level - width / 2 to level +
width / 2 become 0 to 255.
"""

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from samgraph.errors import ImageError, OptionError
from samgraph.media.volume.scan import Scan, Voxels
from samgraph.untrusted.arguments import number

Window: TypeAlias = str | Sequence[float] | None

# Hounsfield units, as radiology uses them: level and width.
WINDOWS = {
    "abdomen": (40.0, 400.0),
    "bone": (400.0, 1800.0),
    "brain": (40.0, 80.0),
    "liver": (30.0, 150.0),
    "lung": (-600.0, 1500.0),
    "mediastinum": (50.0, 350.0),
}
AUTO, PERCENTILES = "auto", (0.5, 99.5)
_MOST_SAMPLED = 4_000_000


def value_range(window: Window, scan: Scan) -> tuple[float, float]:
    """The values that become 0 and 255.

    Args:
        window: (level, width), a name of `WINDOWS`, or "auto": from the 0.5th to the 99.5th
            percentile of what is not zero. If omitted, what the file suggests, else 0 to 255 for
            bytes, else "auto".
        scan: The volume.

    Raises:
        OptionError: There is no such window.
        ImageError: The volume holds no finite number.
    """
    if window is None and scan.window is not None:
        window = scan.window
    if window is None and scan.voxels.dtype == np.uint8 and (scan.slope, scan.intercept) == (1, 0):
        return 0.0, 255.0
    if window is None or window == AUTO:
        return _percentiles(scan)
    if isinstance(window, str):
        if window not in WINDOWS:
            expected = f"level and width, {AUTO}, {', '.join(WINDOWS)}"
            raise OptionError(f"there is no window `{window}`", expected=expected)
        window = WINDOWS[window]
    level, width = _pair(window)
    return level - width / 2, level + width / 2


def _pair(window: Any) -> tuple[float, float]:
    """Level and width, checked."""
    try:
        level, width = window
    except (TypeError, ValueError) as error:
        raise OptionError("a window is a level and a width", got=repr(window)[:80]) from error
    level, width = number("window level", level), number("window width", width)
    if not width > 0:
        raise OptionError("the width of a window is above 0", got=f"{width:g}")
    return level, width


def _percentiles(scan: Scan) -> tuple[float, float]:
    """The range of nearly all values that are not zero, from at most four million of them."""
    flat = scan.voxels
    steps = [1, 1, 1]
    while flat[:: steps[0], :: steps[1], :: steps[2]].size > _MOST_SAMPLED:
        coarsest = max(range(3), key=lambda axis: flat.shape[axis] / steps[axis])
        steps[coarsest] += 1
    some = values(np.asarray(flat[:: steps[0], :: steps[1], :: steps[2]]).ravel(), scan)
    some = some[np.isfinite(some)]
    if not some.size:
        raise ImageError(f"{scan.name} holds no finite number", got="NaN or infinity everywhere")
    inside = some[some != 0]
    low, high = np.percentile(inside if inside.size else some, PERCENTILES)
    return float(low), float(high)


def values(voxels: Voxels, scan: Scan) -> NDArray[np.float32]:
    """Stored voxels as the values they stand for."""
    with np.errstate(over="ignore", invalid="ignore"):
        if (scan.slope, scan.intercept) == (1.0, 0.0):
            return np.asarray(voxels, np.float32)
        scaled = np.asarray(voxels, np.float64) * scan.slope + scan.intercept
        return scaled.astype(np.float32)


def grey(voxels: Voxels, scan: Scan, low: float, high: float) -> NDArray[np.uint8]:
    """A slice as bytes: `low` and less, and what is no number, is 0; `high` and more is 255."""
    width = max(high - low, 1e-6)
    found = values(voxels, scan)
    with np.errstate(over="ignore", invalid="ignore"):
        shade = np.clip((found - np.float32(low)) * np.float32(255 / width), 0, 255)
    shade[np.isnan(shade)] = 0
    shown = shade.astype(np.uint8)
    return np.asarray(255 - shown, np.uint8) if scan.is_inverted else shown

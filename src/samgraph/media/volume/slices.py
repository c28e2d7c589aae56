"""The slices of a volume along an axis, as frames of a video."""

import numpy as np
from numpy.typing import NDArray

from samgraph.media.image.reading import Rgb
from samgraph.media.video.source import Damage, FrameSource, check_index
from samgraph.media.volume.scan import Scan
from samgraph.media.volume.window import Window, grey, value_range


class Slices(FrameSource):
    """Slices by index: grey pictures whose rows and columns are the two other axes, in order."""

    def __init__(self, scan: Scan, axis: int, window: Window = None) -> None:
        self.scan, self.axis = scan, axis
        self.value_range = value_range(window, scan)
        self._stack = np.moveaxis(scan.voxels, axis, 0)

    @property
    def name(self) -> str:
        """The name of the file or folder."""
        return self.scan.name

    @property
    def length(self) -> int:
        """The number of slices."""
        return int(self._stack.shape[0])

    @property
    def size_hw(self) -> tuple[int, int]:
        """Height and width of a slice."""
        return int(self._stack.shape[1]), int(self._stack.shape[2])

    @property
    def damage(self) -> Damage:
        """None: a volume is read whole."""
        return Damage(None, self.length, self.length)

    def picture(self, index: int) -> NDArray[np.uint8]:
        """A slice as it is shown to the model: uint8 [H, W]."""
        check_index(index, self.length, self.name)
        return grey(self._stack[index], self.scan, *self.value_range)

    def frame(self, index: int) -> Rgb:
        """A slice as uint8 [H, W, 3]."""
        return np.repeat(self.picture(index)[..., None], 3, axis=2)

    def time(self, index: int) -> float | None:
        """None: slices are not apart in time."""
        check_index(index, self.length, self.name)
        return None

    def close(self) -> None:
        """Nothing is held open."""

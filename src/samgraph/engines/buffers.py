"""Buffers: what graphs take and give. They stay where the engine computes.

On the CPU a buffer is a numpy array, with no wrapper and no copy; in the torch engine it is a
tensor on its device. Whoever holds buffers between runs reads `shape` and `nbytes`, takes parts of
them by indexing, and leaves everything else to `Buffers`, the few operations an engine provides.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from samgraph.graph.types import DTYPES, Array, DType, numpy_dtype


class Buffer(Protocol):
    """Values on a device. Indexing gives a view: nothing is copied, nothing leaves the device."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The lengths of its axes."""
        ...

    @property
    def nbytes(self) -> int:
        """How much memory it takes."""
        ...

    def __getitem__(self, key: Any, /) -> Any:
        """A part, by numbers and slices."""
        ...

    def __len__(self) -> int:
        """The length of the first axis."""
        ...


HostArray: TypeAlias = Array


@dataclass(frozen=True, slots=True)
class MaskMeasures:
    """What is known of N masks at the size of an image."""

    core: NDArray[np.int64]  # pixels above the highest threshold, [N]
    reach: NDArray[np.int64]  # pixels above the lowest
    boxes: NDArray[np.int64]  # above the middle one: left, top, right, bottom, inclusive; or -1


class DeviceImages(Protocol):
    """Pixels and masks on a device that is not the host, so that bytes and bits cross, not floats.

    Shapes: H and W of an image, S input size of the model, N masks of side L.
    """

    @property
    def frames_at_once(self) -> int:
        """How many frames of a file are worth encoding together."""
        ...

    def frame_pixels(self, frame: NDArray[np.uint8], size: int, mean: "Rgb", std: "Rgb") -> Buffer:
        """A frame of a video as `media.image.preprocess.resize_video_frame` gives it: [3, S, S]."""
        ...

    def image_pixels(self, image: NDArray[np.uint8], size: int, mean: "Rgb", std: "Rgb") -> Buffer:
        """A photograph as `media.image.preprocess.resize_image` gives it: [3, S, S]."""
        ...

    def masks(self, logits: Any, size_hw: tuple[int, int], threshold: float) -> NDArray[np.bool_]:
        """Masks on the host, [N, H, W], where logits [N, L, L] enlarged exceed the threshold."""
        ...

    def measure(
        self, logits: Any, size_hw: tuple[int, int], thresholds: tuple[float, float, float]
    ) -> MaskMeasures:
        """Areas and boxes of masks, by a low, a middle and a high threshold."""
        ...

    def pick(self, masks: Any, rows: NDArray[np.int64]) -> Buffer:
        """Some of the masks [N, M, L, L], counted over both axes: [K, L, L]."""
        ...

    def changes(
        self, logits: Any, size_hw: tuple[int, int], threshold: float
    ) -> list[NDArray[np.int64]]:
        """Where each of the masks [N, L, L] begins and ends, for `rle.encode_changes`.

        Columns are read one behind another, each of H pixels and one that is empty.
        """
        ...

    def beside(self) -> AbstractContextManager[None]:
        """For a thread of its own: its work overlaps that of others, and is complete at the end."""
        ...


Rgb: TypeAlias = tuple[float, float, float]


class Buffers(Protocol):
    """What an engine does with buffers outside of its graphs."""

    @property
    def images(self) -> DeviceImages | None:
        """Work on pixels and masks where the engine computes; None where that is the host."""
        ...

    def owns(self, value: object) -> bool:
        """Whether a value is a buffer of this engine, on its device."""
        ...

    def dtype(self, buffer: Any) -> DType | None:
        """Our name for the dtype of a buffer; None where there is none."""
        ...

    def fits(self, values: Sequence[Any], dtypes: Sequence[DType]) -> bool:
        """Whether all values are buffers of this engine, of these dtypes."""
        ...

    def upload(self, array: HostArray) -> Buffer:
        """A host array as a buffer, to be read only. On the CPU it is the array itself."""
        ...

    def download(self, buffer: Buffer) -> HostArray:
        """A buffer as a host array; waits until it was computed."""
        ...

    def zeros(self, shape: Sequence[int], dtype: DType) -> Buffer:
        """A buffer of zeros."""
        ...

    def write(self, target: Buffer, rows: Sequence[int], values: Buffer) -> None:
        """Set rows of `target` along its first axis to those of `values`, in its own dtype."""
        ...

    def concat(self, parts: Sequence[Buffer]) -> Buffer:
        """Buffers one behind another along the first axis; a single one as it is."""
        ...

    def repeat(self, buffer: Buffer, count: int) -> Buffer:
        """[1, ...] as [count, ...], without a copy where the engine can."""
        ...

    def clip(self, buffer: Buffer, limit: float) -> Buffer:
        """Values cut to within plus or minus `limit`."""
        ...


_NAMES: dict[np.dtype[Any], DType] = {numpy_dtype(name): name for name in DTYPES}


class HostBuffers:
    """Buffers that are numpy arrays."""

    images: DeviceImages | None = None

    def owns(self, value: object) -> bool:
        """Whether it is an array."""
        return isinstance(value, np.ndarray)

    def dtype(self, buffer: Any) -> DType | None:
        """Our name for the dtype of an array."""
        return _NAMES.get(buffer.dtype)

    def fits(self, values: Sequence[Any], dtypes: Sequence[DType]) -> bool:
        """Whether all are arrays of these dtypes."""
        for value, dtype in zip(values, dtypes, strict=True):
            if not isinstance(value, np.ndarray) or _NAMES.get(value.dtype) != dtype:
                return False
        return True

    def upload(self, array: HostArray) -> HostArray:
        """The array itself."""
        return array

    def download(self, buffer: Any) -> HostArray:
        """The array itself."""
        array: HostArray = buffer
        return array

    def zeros(self, shape: Sequence[int], dtype: DType) -> HostArray:
        """An array of zeros."""
        return np.zeros(shape, numpy_dtype(dtype))

    def write(self, target: Any, rows: Sequence[int], values: Any) -> None:
        """One copy per row."""
        for row, value in zip(rows, values, strict=True):
            target[row] = value

    def concat(self, parts: Sequence[Any]) -> HostArray:
        """One copy; none of a single part."""
        joined: HostArray = parts[0] if len(parts) == 1 else np.concatenate(parts)
        return joined

    def repeat(self, buffer: Any, count: int) -> HostArray:
        """A view; the array itself for one, since OpenVINO copies what cannot be written to."""
        one: HostArray = buffer
        return one if count == 1 else np.broadcast_to(one, (count, *one.shape[1:]))

    def clip(self, buffer: Any, limit: float) -> HostArray:
        """A new array."""
        cut: HostArray = np.clip(buffer, -limit, limit)
        return cut


HOST_BUFFERS = HostBuffers()

"""Buffers: inputs and outputs of graphs, in the memory of the engine's device.

On the CPU a buffer is a numpy array, with no wrapper and no copy; in the torch engine it is a
tensor on its device. Callers read `shape` and `nbytes` and index; everything else is in `Buffers`,
the few operations an engine provides.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from samgraph.graph.types import DTYPES, Array, DType, numpy_dtype


class Buffer(Protocol):
    """An array on a device. Indexing gives a view, without a copy."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape."""
        ...

    @property
    def nbytes(self) -> int:
        """Its size in bytes."""
        ...

    def __getitem__(self, key: Any, /) -> Any:
        """A view, by ints and slices."""
        ...

    def __len__(self) -> int:
        """The length of the first axis."""
        ...


HostArray: TypeAlias = Array


@dataclass(frozen=True, slots=True)
class MaskFilter:
    """Which of the masks of a crop pass, in automatic mask generation.

    Of each prompt's masks the first is left out, or with `multimask` False all but one: the first,
    unless `stable_from` is given and its stability is below that, then the best of the others.
    """

    crop_xyxy: tuple[int, int, int, int]
    image_hw: tuple[int, int]
    edge: int  # masks that end so near an edge of the crop, but not of the image, were cut
    thresholds: tuple[float, float, float]  # of logits: low, middle, high
    least_score: float  # the predicted IoU is above this; 0 and less: any
    least_stability: float
    multimask: bool = True
    stable_from: float | None = None

    @property
    def crop_hw(self) -> tuple[int, int]:
        """Height and width of the crop."""
        left, top, right, bottom = self.crop_xyxy
        return bottom - top, right - left


@dataclass(frozen=True, slots=True)
class PassedMasks:
    """K masks that passed a filter, on the device but for the prompts they are from."""

    prompts: NDArray[np.int64]  # rows of the batch, [K]
    logits: Any  # [K, L, L]
    scores: Any  # predicted IoU, [K]
    stability: Any  # [K]
    boxes: Any  # left, top, right, bottom in the image, the last pixels included, [K, 4]


@dataclass(frozen=True, slots=True)
class BestMasks:
    """K masks that non-maximum suppression kept, best first; their logits stay on the device."""

    numbers: NDArray[np.int64]  # counted over the masks of all batches, [K]
    logits: Any  # [K, L, L]
    scores: NDArray[np.float32]  # [K]
    stability: NDArray[np.float32]  # [K]
    boxes: NDArray[np.int64]  # [K, 4]


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

    def screen(self, masks: Any, ious: Any, stability: Any, rule: MaskFilter) -> Any:
        """Start to filter masks [N, M, L, L] with scores [N, M] of each; waits for nothing.

        What it returns is for `passed`.
        """
        ...

    def passed(self, screened: Any) -> PassedMasks:
        """The masks that passed; waits until what `screen` started is done, and no longer."""
        ...

    def best(self, parts: Sequence[PassedMasks], iou_threshold: float) -> BestMasks:
        """Non-maximum suppression by score, as `media.mask.geometry.batched_nms`."""
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
    """The operations of an engine on buffers outside of graphs."""

    @property
    def images(self) -> DeviceImages | None:
        """Work on pixels and masks where the engine computes; None where that is the host."""
        ...

    def owns(self, value: object) -> bool:
        """Whether a value is a buffer of this engine, on its device."""
        ...

    def dtype(self, buffer: Any) -> DType | None:
        """The `DType` of a buffer; None if it has no equivalent."""
        ...

    def fits(self, values: Sequence[Any], dtypes: Sequence[DType]) -> bool:
        """Whether all values are buffers of this engine, of these dtypes."""
        ...

    def upload(self, array: HostArray) -> Buffer:
        """Copy a host array to a buffer, to be read only. On the CPU, the array itself."""
        ...

    def download(self, buffer: Buffer) -> HostArray:
        """Copy a buffer to a host array; waits until it is computed."""
        ...

    def zeros(self, shape: Sequence[int], dtype: DType) -> Buffer:
        """A buffer of zeros."""
        ...

    def write(self, target: Buffer, rows: Sequence[int], values: Buffer) -> None:
        """Set rows of `target` along its first axis to those of `values`, in its own dtype."""
        ...

    def concat(self, parts: Sequence[Buffer]) -> Buffer:
        """Buffers concatenated along the first axis; a single buffer unchanged."""
        ...

    def repeat(self, buffer: Buffer, count: int) -> Buffer:
        """[1, ...] as [count, ...], without a copy where the engine can."""
        ...

    def clip(self, buffer: Buffer, limit: float) -> Buffer:
        """Values clipped to plus or minus `limit`."""
        ...


_NAMES: dict[np.dtype[Any], DType] = {numpy_dtype(name): name for name in DTYPES}


class HostBuffers:
    """Buffers that are numpy arrays."""

    images: DeviceImages | None = None

    def owns(self, value: object) -> bool:
        """Whether it is an array."""
        return isinstance(value, np.ndarray)

    def dtype(self, buffer: Any) -> DType | None:
        """The `DType` of an array."""
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
        """One copy; a single part is not copied."""
        joined: HostArray = parts[0] if len(parts) == 1 else np.concatenate(parts)
        return joined

    def repeat(self, buffer: Any, count: int) -> HostArray:
        """A view; the array itself for a count of 1, since OpenVINO copies read-only arrays."""
        one: HostArray = buffer
        return one if count == 1 else np.broadcast_to(one, (count, *one.shape[1:]))

    def clip(self, buffer: Any, limit: float) -> HostArray:
        """A new array."""
        cut: HostArray = np.clip(buffer, -limit, limit)
        return cut


HOST_BUFFERS = HostBuffers()

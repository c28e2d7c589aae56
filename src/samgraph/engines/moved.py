"""Buffers after a device was left for another: what is still on the first is taken along."""

from collections.abc import Sequence
from typing import Any

from samgraph.engines.buffers import Buffer, Buffers, DeviceImages
from samgraph.graph.types import Array, DType


class MovedBuffers:
    """The buffers of an engine, which also take those of another that ran before it.

    What is given back is of the engine that runs now. A buffer of the other is copied whenever it
    is given; features and memories of before are few, and soon replaced.
    """

    def __init__(self, now: Buffers, before: Buffers) -> None:
        self._now, self._before = now, before
        self.images: DeviceImages | None = now.images

    def here(self, value: Any) -> Any:
        """A value as it is, unless it is on the other device."""
        if not self._before.owns(value):
            return value
        return self._now.upload(self._before.download(value))

    def owns(self, value: object) -> bool:
        """Whether it is a buffer of the engine that runs now."""
        return self._now.owns(value)

    def dtype(self, buffer: Any) -> DType | None:
        """The `DType` of a buffer of either."""
        return (self._before if self._before.owns(buffer) else self._now).dtype(buffer)

    def fits(self, values: Sequence[Any], dtypes: Sequence[DType]) -> bool:
        """Whether all are buffers of the engine that runs now, of these dtypes."""
        return self._now.fits(values, dtypes)

    def upload(self, array: Array) -> Buffer:
        """An array of the host."""
        return self._now.upload(array)

    def download(self, buffer: Any) -> Array:
        """A buffer of either."""
        return (self._before if self._before.owns(buffer) else self._now).download(buffer)

    def zeros(self, shape: Sequence[int], dtype: DType) -> Buffer:
        """Of the engine that runs now."""
        return self._now.zeros(shape, dtype)

    def write(self, target: Buffer, rows: Sequence[int], values: Buffer) -> None:
        """Values of either into a buffer of the engine that runs now."""
        self._now.write(target, rows, self.here(values))

    def concat(self, parts: Sequence[Buffer]) -> Buffer:
        """Buffers of either."""
        return self._now.concat([self.here(part) for part in parts])

    def repeat(self, buffer: Buffer, count: int) -> Buffer:
        """A buffer of either."""
        return self._now.repeat(self.here(buffer), count)

    def clip(self, buffer: Buffer, limit: float) -> Buffer:
        """A buffer of either."""
        return self._now.clip(self.here(buffer), limit)

"""The memory bank: what is remembered of objects, in pages that stay on the device.

All objects of a video share one pool: a buffer of mask memories and one of object pointers. Storing
a memory is one write into a free page; reading it names the page, and memory attention finds it
there. A page is free again when nothing refers to it. Where the device has no memory for more
pages, a pool moves to host memory, and the pages that a frame reads are copied up for it.

Shapes: N objects, F frames, T tokens, Q pointers, C channels.
"""

import warnings
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from samgraph.engines import Buffer, Buffers
from samgraph.engines.buffers import HOST_BUFFERS
from samgraph.errors import DeviceMemoryError, OptionError, SamgraphWarning
from samgraph.graph.types import DType
from samgraph.models.family import BankRead, MemoryLayout
from samgraph.predict.video.policy import MemoryPolicy, Position, Selection

MemoryPrecision: TypeAlias = Literal["bf16", "fp32"]

STORED_AS: dict[str, DType] = {"bf16": "bf16", "fp32": "f32"}
# Pages a pool has at first, and gains when it is full.
PAGES = 8


class Page:
    """A row of a pool, held for as long as somebody refers to this object."""

    __slots__ = ("_pool", "nbytes", "row")

    def __init__(self, pool: "PagePool", row: int) -> None:
        self._pool, self.row, self.nbytes = pool, row, pool.page_bytes

    def __del__(self) -> None:
        self._pool.free.append(self.row)

    @property
    def buffer(self) -> Buffer:
        """What was stored, as [1, ...], to be read before the page is let go."""
        return self._pool.page(self.row)


class PagePool:
    """A buffer whose rows are handed out one by one. It grows when all are taken.

    It is on the device, or on the host for a device whose memory is full (`is_copied`), or, as
    soon as it is given values of the host, there for good.
    """

    def __init__(self, buffers: Buffers, shape: Sequence[int], dtype: DType) -> None:
        self._device, self._shape, self.dtype = buffers, tuple(shape), dtype
        self._buffers, self.is_copied, self._is_apart = buffers, False, buffers is not HOST_BUFFERS
        self.free: list[int] = []
        try:
            self.buffer = buffers.zeros((PAGES, *shape), dtype)
        except DeviceMemoryError as error:
            self.buffer, self._buffers = HOST_BUFFERS.zeros((PAGES, *shape), dtype), HOST_BUFFERS
            self._leave(error)
        self.page_bytes = self.buffer.nbytes // PAGES
        self.free += range(PAGES)

    def page(self, row: int) -> Buffer:
        """A row, as [1, ...]; a view, unless it must be copied up."""
        part: Buffer = self.buffer[row : row + 1]
        return self._device.upload(np.asarray(part)) if self.is_copied else part

    def read(self, rows: NDArray[np.int64]) -> tuple[Buffer, NDArray[np.int64]]:
        """A buffer with these rows, to be copied up, and which of its own they are."""
        if not self.is_copied or not rows.size:
            return self.buffer, rows
        wanted, places = np.unique(rows, return_inverse=True)
        return np.asarray(self.buffer)[wanted], places.reshape(rows.shape).astype(np.int64)

    def store(self, values: Buffer) -> list[Page]:
        """Write values [N, ...] into free pages."""
        count = len(values)
        if self._is_apart:
            self._follow(values)
        if len(self.free) < count:
            self._grow(count - len(self.free))
        rows, pages = [], []
        for _ in range(count):
            rows.append(row := self.free.pop())
            pages.append(Page(self, row))
        if self._is_apart and not self._buffers.owns(values):
            values = self._device.download(values)
        self._buffers.write(self.buffer, rows, values)
        return pages

    def _grow(self, wanted: int) -> None:
        """Replace the buffer by a larger one, with the same rows and free rows behind."""
        before = len(self.buffer)
        added = -(-wanted // PAGES) * PAGES
        shape = (before + added, *self._shape)
        try:
            larger = self._buffers.zeros(shape, self.dtype)
        except DeviceMemoryError as error:
            self._leave(error)
            larger = self._buffers.zeros(shape, self.dtype)
        self._buffers.write(larger, range(before), self.buffer)
        self.buffer = larger
        self.free += range(before, before + added)

    def _follow(self, values: Buffer) -> None:
        """Move to the host with a model that did, whose values are there."""
        if HOST_BUFFERS.owns(values):
            self._move()
            self.is_copied = False

    def _move(self) -> None:
        if self._buffers is not HOST_BUFFERS:
            self.buffer, self._buffers = self._device.download(self.buffer), HOST_BUFFERS

    def _leave(self, full: DeviceMemoryError) -> None:
        """Go on in host memory, from which pages are copied up."""
        self._move()
        self.is_copied = True
        warnings.warn(
            f"the device has no memory left for a larger memory bank ({full.got}): it moves to "
            "host memory, and what a frame reads is copied, which is slower; track fewer objects "
            "at once or set `archive_mb=0` to avoid that",
            SamgraphWarning,
            stacklevel=2,
        )


@dataclass(frozen=True, slots=True)
class Memory:
    """What is remembered of one object on one frame.

    `mask` is a page of [T, channels], or None where only the pointer [C] is still of use.
    """

    mask: Page | None
    pointer: Page

    @property
    def nbytes(self) -> int:
        """How much memory it takes."""
        return self.pointer.nbytes + (0 if self.mask is None else self.mask.nbytes)


class MemoryPool:
    """The pages of all objects of a video."""

    def __init__(self, buffers: Buffers, layout: MemoryLayout, precision: MemoryPrecision) -> None:
        if precision not in STORED_AS:
            known = ", ".join(STORED_AS)
            raise OptionError(f"memory cannot be stored as `{precision}`", expected=known)
        self.masks = PagePool(buffers, (layout.tokens, layout.channels), STORED_AS[precision])
        self.pointers = PagePool(buffers, (layout.pointer_channels,), "f32")

    def store(self, masks: Buffer, pointers: Buffer) -> list[Memory]:
        """Remember objects: mask memories [N, T, channels] and pointers [N, C]."""
        return list(map(Memory, self.masks.store(masks), self.pointers.store(pointers)))

    def read(self, recalled: Sequence["Recalled"]) -> BankRead:
        """What several objects read, whose memories have equal lengths."""
        frames, slots, pointers, times, _ = zip(*recalled, strict=True)
        read = BankRead(
            self.masks.buffer,
            self.masks.dtype,
            np.array(frames, np.int64),
            np.array(slots, np.int64),
            self.pointers.buffer,
            np.array(pointers, np.int64).reshape(len(recalled), -1),
            np.array(times, np.float32).reshape(len(recalled), -1),
        )
        if not self.masks.is_copied and not self.pointers.is_copied:
            return read
        pages, rows = self.masks.read(read.frames)
        pointer_rows, chosen = self.pointers.read(read.pointers)
        return replace(read, pages=pages, frames=rows, pointer_rows=pointer_rows, pointers=chosen)


class Recalled(NamedTuple):
    """What one object reads at a frame: pages and their time, in the order of attention."""

    frames: tuple[int, ...]  # F pages of mask memory
    slots: tuple[int, ...]
    pointers: tuple[int, ...]  # Q pages of pointers
    times: tuple[float, ...]
    lengths: tuple[int, int]  # F and Q; objects with the same can be run together


@dataclass(slots=True)
class MemoryBank:
    """What is remembered of one object, by frame. Frames below 0 are those of an earlier video."""

    prompted: dict[int, Memory] = field(default_factory=dict)
    tracked: dict[int, Memory] = field(default_factory=dict)

    @property
    def nbytes(self) -> int:
        """How much memory it takes."""
        return sum(one.nbytes for store in (self.prompted, self.tracked) for one in store.values())

    def recall(self, selection: Selection) -> Recalled:
        """Where the selected memories are."""
        stores = (self.tracked, self.prompted)
        frames, slots = [], []
        for frame, slot, is_prompted in selection.masks:
            page = stores[is_prompted][frame].mask
            if page is not None:
                frames.append(page.row)
                slots.append(slot)
        rows, times = [], []
        for frame, distance, is_prompted in selection.pointers:
            rows.append(stores[is_prompted][frame].pointer.row)
            times.append(distance / selection.longest)
        lengths = len(frames), len(rows)
        return Recalled(tuple(frames), tuple(slots), tuple(rows), tuple(times), lengths)

    def remember_prompted(self, frame: int, memory: Memory) -> None:
        """A frame that was prompted; what tracking found there is forgotten."""
        self.prompted[frame] = memory
        self.tracked.pop(frame, None)

    def forget(
        self, policy: MemoryPolicy, positions: Collection[Position]
    ) -> list[tuple[int, Memory]]:
        """Drop what will be read at none of these positions, nor after them; returns what was.

        A mask that is dropped before its pointer comes back with it, once.
        """
        masks: set[int] = set()
        pointers: set[int] = set()
        for position in positions:
            kept = policy.kept(self.tracked, position)
            masks |= kept[0]
            pointers |= kept[1]
        dropped = []
        for frame, memory in list(self.tracked.items()):
            if memory.mask is not None and frame not in masks:
                dropped.append((frame, memory))
                self.tracked[frame] = Memory(None, memory.pointer)
            if frame not in masks and frame not in pointers:
                del self.tracked[frame]
        return dropped

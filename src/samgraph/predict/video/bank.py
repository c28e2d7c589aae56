"""The memory bank: what is remembered of objects, in pages that stay on the device.

All objects of a video share one pool: a buffer of mask memories and one of object pointers. Storing
a memory is one write into a free page; reading it names the page, and memory attention finds it
there. A page is free again when nothing refers to it.

Shapes: N objects, F frames, T tokens, Q pointers, C channels.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from samgraph.engines import Buffer, Buffers
from samgraph.errors import OptionError
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
        """What was stored, as [1, ...]: a view, to be read before the page is let go."""
        part: Buffer = self._pool.buffer[self.row : self.row + 1]
        return part


class PagePool:
    """A buffer whose rows are handed out one by one. It grows when all are taken."""

    def __init__(self, buffers: Buffers, shape: Sequence[int], dtype: DType) -> None:
        self._buffers, self._shape, self.dtype = buffers, tuple(shape), dtype
        self.buffer = buffers.zeros((PAGES, *shape), dtype)
        self.page_bytes = self.buffer.nbytes // PAGES
        self.free = list(range(PAGES))

    def store(self, values: Buffer) -> list[Page]:
        """Write values [N, ...] into free pages."""
        count = len(values)
        if len(self.free) < count:
            self._grow(count - len(self.free))
        rows, pages = [], []
        for _ in range(count):
            rows.append(row := self.free.pop())
            pages.append(Page(self, row))
        self._buffers.write(self.buffer, rows, values)
        return pages

    def _grow(self, wanted: int) -> None:
        """Replace the buffer by a larger one, with the same rows and free rows behind."""
        before = len(self.buffer)
        added = -(-wanted // PAGES) * PAGES
        larger = self._buffers.zeros((before + added, *self._shape), self.dtype)
        self._buffers.write(larger, range(before), self.buffer)
        self.buffer = larger
        self.free += range(before, before + added)


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
        return BankRead(
            self.masks.buffer,
            self.masks.dtype,
            np.array(frames, np.int64),
            np.array(slots, np.int64),
            self.pointers.buffer,
            np.array(pointers, np.int64).reshape(len(recalled), -1),
            np.array(times, np.float32).reshape(len(recalled), -1),
        )


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

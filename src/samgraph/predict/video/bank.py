"""The memory bank: what is remembered of objects, in pages that stay on the device.

All objects of a video share one pool: a buffer of mask memories and one of object pointers. Storing
a memory is one write into a free page; reading it names the page, and memory attention finds it
there. A page is free again when nothing refers to it.

Shapes: N objects, F frames, T tokens, Q pointers, C channels.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

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

    __slots__ = ("_pool", "row")

    def __init__(self, pool: "PagePool", row: int) -> None:
        self._pool, self.row = pool, row

    def __del__(self) -> None:
        self._pool.free.append(self.row)

    @property
    def buffer(self) -> Buffer:
        """What was stored, as [1, ...]: a view, to be read before the page is let go."""
        part: Buffer = self._pool.buffer[self.row : self.row + 1]
        return part

    @property
    def nbytes(self) -> int:
        """How much memory it takes."""
        return self._pool.page_bytes


class PagePool:
    """A buffer whose rows are handed out one by one. It grows when all are taken."""

    def __init__(self, buffers: Buffers, shape: Sequence[int], dtype: DType) -> None:
        self._buffers, self._shape, self._dtype = buffers, tuple(shape), dtype
        self.buffer = buffers.zeros((PAGES, *shape), dtype)
        self.page_bytes = self.buffer.nbytes // PAGES
        self.free = list(range(PAGES))

    def store(self, values: Buffer) -> list[Page]:
        """Write values [N, ...] into free pages."""
        count = len(values)
        if len(self.free) < count:
            self._grow(count - len(self.free))
        rows = [self.free.pop() for _ in range(count)]
        self._buffers.write(self.buffer, rows, values)
        return [Page(self, row) for row in rows]

    def _grow(self, wanted: int) -> None:
        """A larger buffer with the same rows, and free ones behind."""
        before = len(self.buffer)
        added = -(-wanted // PAGES) * PAGES
        larger = self._buffers.zeros((before + added, *self._shape), self._dtype)
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
        pairs = zip(self.masks.store(masks), self.pointers.store(pointers), strict=True)
        return [Memory(mask, pointer) for mask, pointer in pairs]

    def read(self, recalled: Sequence["Recalled"]) -> BankRead:
        """What several objects read, whose memories have equal lengths."""
        count = len(recalled)
        return BankRead(
            self.masks.buffer,
            np.array([one.frames for one in recalled], np.int64),
            np.array([one.slots for one in recalled], np.int64),
            self.pointers.buffer,
            np.array([one.pointers for one in recalled], np.int64).reshape(count, -1),
            np.array([one.times for one in recalled], np.float32).reshape(count, -1),
        )


@dataclass(frozen=True, slots=True)
class Recalled:
    """What one object reads at a frame: pages and their time, in the order of attention."""

    frames: tuple[int, ...]  # F pages of mask memory
    slots: tuple[int, ...]
    pointers: tuple[int, ...]  # Q pages of pointers
    times: tuple[float, ...]

    @property
    def lengths(self) -> tuple[int, int]:
        """F and Q; objects with the same can be run together."""
        return len(self.frames), len(self.pointers)


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
        rows = [stores[prompted][frame].pointer.row for frame, _, prompted in selection.pointers]
        times = [distance / selection.longest for _, distance, _ in selection.pointers]
        return Recalled(tuple(frames), tuple(slots), tuple(rows), tuple(times))

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
        dropped = []
        for frame, memory in list(self.tracked.items()):
            if memory.mask is not None:
                if any(policy.keeps_mask(frame, p) for p in positions):
                    continue
                dropped.append((frame, memory))
            if not any(policy.keeps_pointer(frame, p) for p in positions):
                del self.tracked[frame]
            elif memory.mask is not None:
                self.tracked[frame] = Memory(None, memory.pointer)
        return dropped

"""The packets of a video file, listed once, and what the list tells: which frame is which.

Packets come in decoding order, frames are shown in another. A packet's place in the file is its
*ordinal*; a frame's place in the film is its *index*. The list maps one to the other by the time
stamps, without decoding anything, so frame 5000 has the same number however it is reached.

A frame can be decoded from any *entry* at or before it: a packet the file marks as a key frame.
"""

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from samgraph.errors import VideoError

Integers = NDArray[np.int64]

MAX_PACKETS = 10_000_000
# After so many errors in a row without a packet between them, the rest of the file is given up.
MOST_ERRORS = 8
NEVER_SHOWN = -1
NO_TIME = -(1 << 63)
VP8_SHOWN = 0x10


@dataclass(frozen=True, slots=True)
class PacketList:
    """P packets in file order, and the F frames they hold in the order they are shown.

    Attributes:
        position: Where each packet lies in the file, -1 if not known: [P].
        size: Its length in bytes: [P].
        stamp: Its time stamp, in units of `time_base` seconds: [P].
        index_of: The frame it holds, or -1 if that is never shown: [P].
        ordinal_of: The packet of each frame: [F].
        entries: The packets that decoding may start from, in order, the first one always: [E].
        starts: The frame from which on each of them will do: [E].
        time_base: Seconds a unit of `stamp`.
    """

    position: Integers
    size: Integers
    stamp: Integers
    index_of: Integers
    ordinal_of: Integers
    entries: Integers
    starts: Integers
    time_base: float

    @property
    def hidden(self) -> int:
        """How many packets hold no frame that is shown."""
        return len(self.size) - len(self.ordinal_of)

    @property
    def is_reordered(self) -> bool:
        """Whether frames are shown in another order than they are stored in."""
        return bool((np.diff(self.ordinal_of) < 0).any())

    def entry_for(self, index: int) -> int:
        """The last entry from which this frame can be decoded."""
        place = int(np.searchsorted(self.starts, index, side="right")) - 1
        while place > 0 and self.entries[place] > self.ordinal_of[index]:
            place -= 1
        return int(self.entries[max(place, 0)])

    def entry_before(self, entry: int) -> int:
        """The entry before one, or the first."""
        place = int(np.searchsorted(self.entries, entry)) - 1
        return int(self.entries[max(place, 0)])

    def without_entries(self, last: int, count: int = 1) -> "PacketList":
        """The same list without the entry `last` and others before it, `count` in all."""
        stop = int(np.searchsorted(self.entries, last, side="right"))
        kept = np.ones(len(self.entries), np.bool_)
        kept[max(stop - count, 1) : stop] = False  # the first packet stays
        return replace(self, entries=self.entries[kept], starts=self.starts[kept])

    def in_order_of(self, ordinals: Integers) -> "PacketList":
        """The same list where the frames are those of `ordinals`, shown in that order.

        The times of the frames shown are dealt out anew, in order.
        """
        stamp = self.stamp.copy()
        stamp[ordinals] = np.sort(stamp[ordinals])
        index_of = np.full(len(stamp), NEVER_SHOWN, np.int64)
        index_of[ordinals] = np.arange(len(ordinals))
        entries, starts = _rising(self.entries, index_of)
        return replace(
            self,
            stamp=stamp,
            index_of=index_of,
            ordinal_of=ordinals,
            entries=entries,
            starts=starts,
        )

    def ordinal_at(self, position: int, size: int, stamp: int) -> int | None:
        """Which entry lies at this place of the file; None if none does."""
        at = self.entries[self.size[self.entries] == size]
        known = position >= 0
        here = self.position[at] == position if known else self.stamp[at] == stamp
        matches = at[here]
        return int(matches[0]) if len(matches) == 1 else None

    def seconds(self, index: int) -> float | None:
        """The time of a frame, from the first one on."""
        stamps = self.stamp[self.ordinal_of[[0, index]]]
        if NO_TIME in stamps:
            return None
        return int(stamps[1] - stamps[0]) * self.time_base


def read_packets(container: Any, stream: Any) -> Iterator[Any]:
    """The packets of one stream to the end of the file, going on after errors."""
    errors = 0
    while errors < MOST_ERRORS:
        try:
            for packet in container.demux(stream):
                if packet.size == 0 and packet.dts is None and packet.pts is None:
                    return
                errors = 0
                yield packet
            return
        except Exception:
            errors += 1


def position_of(packet: Any) -> int:
    """Where a packet lies in the file, or -1."""
    return -1 if packet.pos is None else int(packet.pos)


def stamp_of(packet: Any) -> int:
    """The time at which a packet's frame is shown, else decoded, or `NO_TIME`."""
    stamp = packet.dts if packet.pts is None else packet.pts
    return NO_TIME if stamp is None else int(stamp)


def list_packets(container: Any, stream: Any, name: str) -> PacketList:
    """Read through the file once and note where the packets are; nothing is decoded.

    Raises:
        VideoError: There is no packet, or there are too many.
    """
    hides = stream.codec_context.name == "vp8"
    position, size, stamp = array("q"), array("q"), array("q")
    keys, hidden = bytearray(), bytearray()
    for packet in read_packets(container, stream):
        position.append(position_of(packet))
        size.append(packet.size)
        stamp.append(stamp_of(packet))
        keys.append(packet.is_keyframe and packet.size > 0)
        is_hidden = packet.size == 0 or packet.is_discard
        hidden.append(is_hidden or (hides and not memoryview(packet)[0] & VP8_SHOWN))
        if len(size) > MAX_PACKETS:
            raise VideoError(f"{name} has more than {MAX_PACKETS:,} frames")
    return _arranged(
        np.frombuffer(position, np.int64),
        np.frombuffer(size, np.int64),
        np.frombuffer(stamp, np.int64),
        np.frombuffer(keys, np.bool_),
        np.frombuffer(hidden, np.bool_),
        float(stream.time_base or 0),
    )


def _arranged(
    position: Integers,
    size: Integers,
    stamp: Integers,
    is_key: NDArray[np.bool_],
    is_hidden: NDArray[np.bool_],
    time_base: float,
) -> PacketList:
    """The list in order of its time stamps, where all frames have one, and else as stored."""
    shown = np.flatnonzero(~is_hidden)
    if (stamp[shown] != NO_TIME).all():
        shown = shown[np.argsort(stamp[shown], kind="stable")]
    index_of = np.full(len(size), NEVER_SHOWN, np.int64)
    index_of[shown] = np.arange(len(shown))
    entries, starts = _rising(np.flatnonzero(is_key & ~is_hidden), index_of)
    return PacketList(position, size, stamp, index_of, shown, entries, starts, time_base)


def _rising(entries: Integers, index_of: Integers) -> tuple[Integers, Integers]:
    """The entries in file order whose frames also are in order, after packet 0; their frames."""
    index = index_of[entries]
    before = np.maximum.accumulate(np.concatenate([[-1], index]))[:-1]
    kept = (index > before) & (entries > 0)
    first = np.zeros(1, np.int64)
    return np.concatenate([first, entries[kept]]), np.concatenate([first, index[kept]])

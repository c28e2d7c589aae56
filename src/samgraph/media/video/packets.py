"""The packet list of a video file, which maps packets to frame indices.

Packets are stored in decoding order and shown in presentation order. A packet's number in decoding
order is its *ordinal*; a frame's number in presentation order is its *index*. The list maps one to
the other by timestamps, without decoding, so frame 5000 is the same frame after any seek.

A frame can be decoded from any keyframe at or before it.
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
# After this many consecutive errors without a packet, the rest of the file is given up.
MOST_ERRORS = 8
NEVER_SHOWN = -1
NO_TIME = -(1 << 63)
VP8_SHOWN = 0x10


@dataclass(frozen=True, slots=True)
class PacketList:
    """P packets in decoding order, and their F frames in presentation order.

    Attributes:
        position: The byte offset of each packet in the file, -1 if unknown: [P].
        size: Its length in bytes: [P].
        stamp: Its timestamp, in units of `time_base` seconds: [P].
        index_of: The index of its frame, or -1 if that is never shown: [P].
        ordinal_of: The ordinal of each frame's packet: [F].
        keyframes: The ordinals that decoding may start from, packet 0 always among them: [K].
        starts: The index of the first frame decodable from each keyframe: [K].
        time_base: Seconds per unit of `stamp`.
    """

    position: Integers
    size: Integers
    stamp: Integers
    index_of: Integers
    ordinal_of: Integers
    keyframes: Integers
    starts: Integers
    time_base: float

    @property
    def invisible(self) -> int:
        """The number of packets without a visible frame."""
        return len(self.size) - len(self.ordinal_of)

    @property
    def is_reordered(self) -> bool:
        """Whether presentation order differs from decoding order."""
        return bool((np.diff(self.ordinal_of) < 0).any())

    def keyframe_for(self, index: int) -> int:
        """The last keyframe from which this frame can be decoded."""
        row = int(np.searchsorted(self.starts, index, side="right")) - 1
        while row > 0 and self.keyframes[row] > self.ordinal_of[index]:
            row -= 1
        return int(self.keyframes[max(row, 0)])

    def keyframe_before(self, keyframe: int) -> int:
        """The keyframe before another, or the first."""
        row = int(np.searchsorted(self.keyframes, keyframe)) - 1
        return int(self.keyframes[max(row, 0)])

    def without_keyframes(self, last: int, count: int = 1) -> "PacketList":
        """The same list without the keyframe `last` and others before it, `count` in all."""
        stop = int(np.searchsorted(self.keyframes, last, side="right"))
        kept = np.ones(len(self.keyframes), np.bool_)
        kept[max(stop - count, 1) : stop] = False  # the first packet stays
        return replace(self, keyframes=self.keyframes[kept], starts=self.starts[kept])

    def in_order_of(self, ordinals: Integers) -> "PacketList":
        """The same list with the frames of `ordinals` as presentation order.

        Their timestamps are reassigned in ascending order.
        """
        stamp = self.stamp.copy()
        stamp[ordinals] = np.sort(stamp[ordinals])
        index_of = np.full(len(stamp), NEVER_SHOWN, np.int64)
        index_of[ordinals] = np.arange(len(ordinals))
        keyframes, starts = _rising(self.keyframes, index_of)
        return replace(
            self,
            stamp=stamp,
            index_of=index_of,
            ordinal_of=ordinals,
            keyframes=keyframes,
            starts=starts,
        )

    def ordinal_at(self, position: int, size: int, stamp: int) -> int | None:
        """The ordinal of the keyframe of this size at a position or timestamp; None if unknown."""
        at = self.keyframes[self.size[self.keyframes] == size]
        known = position >= 0
        here = self.position[at] == position if known else self.stamp[at] == stamp
        matches = at[here]
        return int(matches[0]) if len(matches) == 1 else None

    def seconds(self, index: int) -> float | None:
        """Seconds from the first frame to this one; None without timestamps."""
        stamps = self.stamp[self.ordinal_of[[0, index]]]
        if NO_TIME in stamps:
            return None
        return int(stamps[1] - stamps[0]) * self.time_base


def read_packets(container: Any, stream: Any) -> Iterator[Any]:
    """The packets of one stream to the end of the file, continuing after errors."""
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
    """The byte offset of a packet in the file, or -1."""
    return -1 if packet.pos is None else int(packet.pos)


def stamp_of(packet: Any) -> int:
    """A packet's presentation timestamp, else its decoding timestamp, or `NO_TIME`."""
    stamp = packet.dts if packet.pts is None else packet.pts
    return NO_TIME if stamp is None else int(stamp)


def list_packets(container: Any, stream: Any, name: str) -> PacketList:
    """The packet list of a stream, from one pass over the file without decoding.

    Raises:
        VideoError: There is no packet, or there are too many.
    """
    has_invisible = stream.codec_context.name == "vp8"
    position, size, stamp = array("q"), array("q"), array("q")
    keys, invisible = bytearray(), bytearray()
    for packet in read_packets(container, stream):
        position.append(position_of(packet))
        size.append(packet.size)
        stamp.append(stamp_of(packet))
        keys.append(packet.is_keyframe and packet.size > 0)
        is_invisible = packet.size == 0 or packet.is_discard
        invisible.append(is_invisible or (has_invisible and not memoryview(packet)[0] & VP8_SHOWN))
        if len(size) > MAX_PACKETS:
            raise VideoError(f"{name} has more than {MAX_PACKETS:,} frames")
    return _arranged(
        np.frombuffer(position, np.int64),
        np.frombuffer(size, np.int64),
        np.frombuffer(stamp, np.int64),
        np.frombuffer(keys, np.bool_),
        np.frombuffer(invisible, np.bool_),
        float(stream.time_base or 0),
    )


def _arranged(
    position: Integers,
    size: Integers,
    stamp: Integers,
    is_key: NDArray[np.bool_],
    is_invisible: NDArray[np.bool_],
    time_base: float,
) -> PacketList:
    """The list in order of timestamps where all frames have one, else in decoding order."""
    shown = np.flatnonzero(~is_invisible)
    if (stamp[shown] != NO_TIME).all():
        shown = shown[np.argsort(stamp[shown], kind="stable")]
    index_of = np.full(len(size), NEVER_SHOWN, np.int64)
    index_of[shown] = np.arange(len(shown))
    keyframes, starts = _rising(np.flatnonzero(is_key & ~is_invisible), index_of)
    return PacketList(position, size, stamp, index_of, shown, keyframes, starts, time_base)


def _rising(keyframes: Integers, index_of: Integers) -> tuple[Integers, Integers]:
    """Packet 0 and the keyframes whose frame indices ascend, in decoding order; their indices."""
    index = index_of[keyframes]
    before = np.maximum.accumulate(np.concatenate([[-1], index]))[:-1]
    kept = (index > before) & (keyframes > 0)
    first = np.zeros(1, np.int64)
    return np.concatenate([first, keyframes[kept]]), np.concatenate([first, index[kept]])

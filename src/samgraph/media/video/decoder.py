"""Decoding of a video file from any keyframe, packet by packet."""

import os
from collections.abc import Iterator
from itertools import chain, islice
from typing import Any

from samgraph.errors import VideoError
from samgraph.media.video.opening import errors_named, open_container
from samgraph.media.video.packets import (
    NO_TIME,
    PacketList,
    list_packets,
    position_of,
    read_packets,
    stamp_of,
)

# Smaller frames are decoded by one thread.
PIXELS_PER_THREAD = 1_000_000
MOST_THREADS = 4
# After a seek, the keyframe is among the first few packets or the seek has failed.
LANDING = 64


class Decoder:
    """The frames of a file from one keyframe on, in the decoder's output order.

    Attributes:
        keyframe: The ordinal of the first packet decoded.
        fed: The ordinal of the next packet.
        is_done: No more frames will be output.
        is_lost: Decoding ended because the packets differ from those of the packet list.
        has_lost_tail: Frames are missing, perhaps only because of frame threading: an error at the
            very end also drops the frames of the other threads. The next restart uses one thread.
    """

    def __init__(self, path: str, label: str, max_pixels: int) -> None:
        self._path, self._label, self._max_pixels = path, label, max_pixels
        self._threads = 0
        self._owed = 0
        self._container: Any = None
        self._packets: Iterator[Any] = iter(())
        self._list: PacketList | None = None
        self._stream: Any = None
        self.keyframe = 0
        self.fed = 0
        self.is_done = self.is_lost = self.has_lost_tail = False
        self._open()

    @property
    def has_reordering(self) -> bool:
        """Whether the decoder reorders frames (B-frames)."""
        return bool(self._stream.codec_context.has_b_frames)

    @property
    def declared(self) -> int | None:
        """The number of frames the header declares; None if it does not.

        The index of an MP4 is used where there is one, since an edit list may skip frames.
        """
        frames = int(self._stream.frames)
        if frames > 0 and "mp4" in self._container.format.name:
            return len(getattr(self._stream, "index_entries", ())) or frames
        return frames if frames > 0 else None

    def packet_list(self) -> PacketList:
        """The packets of the whole file; the decoder must be restarted afterwards."""
        with errors_named(self._label):
            return list_packets(self._container, self._stream, self._label)

    def restart(self, keyframe: int, packets: PacketList | None) -> bool:
        """Restart at a keyframe; False if the seek fails.

        With a packet list, every packet is compared with it.
        """
        if keyframe == 0 or packets is None or self.has_lost_tail:
            self._open()
        self._list, self.is_done, self.is_lost = packets, False, False
        self.has_lost_tail, self._owed = False, 0
        if keyframe == 0 or packets is None:
            self.keyframe = self.fed = 0
            self._packets = read_packets(self._container, self._stream)
            return True
        return self._seek(keyframe, packets)

    def step(self) -> list[tuple[int, Any]]:
        """Decode one packet; returns the frames output, each with the ordinal of its packet."""
        packet = next(self._packets, None)
        if packet is not None:
            if not self._is_listed(packet):
                self.is_done = self.is_lost = True
                return []
            # The decoder copies a packet's timestamp to its frame, so the timestamp carries the
            # ordinal.
            packet.pts = packet.dts = self.fed
            self.fed += 1
            if packet.size == 0:
                return []
            self._owed += 1
        self.is_done = packet is None
        try:
            frames = self._stream.codec_context.decode(packet)
        except Exception:
            frames = []  # a damaged packet is one missing frame; later frames may be intact
        self._owed -= len(frames)
        if self.is_done and self._owed > 0 and self._threads > 1:
            self._threads, self.has_lost_tail = 1, True
        stamped = [frame for frame in frames if frame.pts is not None]
        return [(frame.pts, frame) for frame in stamped if 0 <= frame.pts < self.fed]

    def close(self) -> None:
        """Close the file."""
        self._packets, self._stream = iter(()), None
        if self._container is not None:
            self._container.close()

    def _open(self) -> None:
        self.close()
        self._container, self._stream = open_container(self._path, self._label, self._max_pixels)
        context = self._stream.codec_context
        self._threads = self._threads or _threads_for(context.width * context.height)
        context.thread_count = self._threads
        context.thread_type = "FRAME" if self._threads > 1 else "SLICE"

    def _seek(self, keyframe: int, packets: PacketList) -> bool:
        """Seek to a keyframe, or to one before it."""
        stamp = int(packets.stamp[keyframe])
        if stamp == NO_TIME:
            return False
        try:
            self._packets = iter(())
            self._container.seek(stamp, stream=self._stream)
        except Exception:
            return False
        rest = read_packets(self._container, self._stream)
        for packet in islice(rest, LANDING):
            landed = packets.ordinal_at(position_of(packet), packet.size, stamp_of(packet))
            if landed is not None and landed <= keyframe:
                self.keyframe = self.fed = landed
                self._packets = chain([packet], rest)
                return True
        return False

    def _is_listed(self, packet: Any) -> bool:
        """Whether this packet is the next of the packet list.

        Raises:
            VideoError: It is not, though the file was read from the start.
        """
        sizes = None if self._list is None else self._list.size
        if sizes is None or (self.fed < len(sizes) and packet.size == sizes[self.fed]):
            return True
        if self.keyframe == 0:
            raise VideoError(f"{self._label} has changed while it was being read")
        return False


def _threads_for(pixels: int) -> int:
    """The number of decoding threads: one per million pixels."""
    cores = os.cpu_count() or 1
    return max(1, min(pixels // PIXELS_PER_THREAD, MOST_THREADS, cores))

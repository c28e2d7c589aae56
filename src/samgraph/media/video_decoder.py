"""One pass through a video file, from any entry, a packet at a time."""

import os
from collections.abc import Iterator
from typing import Any

from samgraph.errors import VideoError
from samgraph.media.video_opening import errors_named, open_container
from samgraph.media.video_packets import NO_TIME, PacketList, list_packets, read_packets

# Below this many pixels one thread decodes faster than anyone asks.
PIXELS_A_THREAD = 1_000_000
MOST_THREADS = 4


class Decoder:
    """The frames of a file from one entry on, in the order the decoder gives them."""

    def __init__(self, path: str, label: str, max_pixels: int) -> None:
        self._path, self._label, self._max_pixels = path, label, max_pixels
        self._threads = 0
        self._container: Any = None
        self._packets: Iterator[Any] = iter(())
        self._list: PacketList | None = None
        self.entry = 0
        self.fed = 0
        self.errors = 0
        self.is_done = False
        self._open()

    @property
    def has_reordering(self) -> bool:
        """Whether the decoder holds frames back to show them in another order."""
        return bool(self._stream.codec_context.has_b_frames)

    @property
    def declared(self) -> int | None:
        """How many frames the header promises; None if it does not say.

        The index of an mp4 is used where there is one: an edit list may have left out frames.
        """
        frames = int(self._stream.frames)
        if frames > 0 and "mp4" in self._container.format.name:
            return len(self._stream.index_entries) or frames
        return frames if frames > 0 else None

    def packet_list(self) -> PacketList:
        """Read through the whole file; the decoder must be restarted afterwards."""
        with errors_named(self._label):
            return list_packets(self._container, self._stream, self._label)

    def restart(self, entry: int, packets: PacketList | None) -> bool:
        """Begin again at an entry; False if the file does not lead there.

        With a list, every packet is compared with it.
        """
        self._list, self.is_done, self.errors = packets, False, 0
        if entry == 0 or packets is None:
            self._open()
            self.entry = self.fed = 0
            self._packets = read_packets(self._container, self._stream)
            return True
        with errors_named(self._label):
            return self._seek(entry, packets)

    def step(self) -> list[tuple[int, Any]]:
        """Decode one packet: the frames that came out, each with the ordinal of its packet."""
        packet = next(self._packets, None)
        if packet is None:
            self.is_done = True
        else:
            self._check(packet)
            # The decoder hands the time stamp of a packet on to its frame: so it carries the
            # ordinal.
            packet.pts = packet.dts = self.fed
            self.fed += 1
            if packet.size == 0:
                return []
        try:
            frames = self._stream.codec_context.decode(packet)
        except Exception:
            # One damaged packet is one missing frame; those after it may be whole.
            self.errors += 1
            if packet is None and self._threads > 1:
                # With several threads, an error at the very end takes whole frames with it.
                self._threads = 1
                self._open()
                self.restart(self.entry, self._list)
            return []
        return [(frame.pts, frame) for frame in frames if frame.pts is not None]

    def close(self) -> None:
        """Let go of the file."""
        self._packets = iter(())
        if self._container is not None:
            self._container.close()

    def _open(self) -> None:
        self.close()
        self._container, self._stream = open_container(self._path, self._label, self._max_pixels)
        context = self._stream.codec_context
        self._threads = self._threads or _threads_for(context.width * context.height)
        context.thread_count = self._threads
        context.thread_type = "FRAME" if self._threads > 1 else "SLICE"

    def _seek(self, entry: int, packets: PacketList) -> bool:
        """Go to the packet of an entry, or to one before it."""
        stamp = int(packets.stamp[entry])
        if stamp == NO_TIME:
            return False
        self._packets = iter(())
        self._container.seek(stamp, stream=self._stream)
        self._packets = read_packets(self._container, self._stream)
        for packet in self._packets:
            pos = -1 if packet.pos is None else packet.pos
            time = packet.pts if packet.pts is not None else packet.dts
            landed = packets.ordinal_at(pos, packet.size, NO_TIME if time is None else time)
            if landed is not None:
                break
        else:
            return False
        if landed > entry:
            return False
        rest, self.entry, self.fed = self._packets, landed, landed
        self._packets = _chained(packet, rest)
        return True

    def _check(self, packet: Any) -> None:
        packets = self._list
        if packets is None:
            return
        if self.fed >= len(packets.size) or packet.size != packets.size[self.fed]:
            raise VideoError(f"{self._label} has changed while it was being read")


def _chained(first: Any, rest: Iterator[Any]) -> Iterator[Any]:
    yield first
    yield from rest


def _threads_for(pixels: int) -> int:
    """How many threads decode: one for every million pixels."""
    cores = os.cpu_count() or 1
    return max(1, min(pixels // PIXELS_A_THREAD, MOST_THREADS, cores))

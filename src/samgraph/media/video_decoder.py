"""A video file, opened without trust, and one pass through it from any entry.

Only paths of regular files are opened, only as one of three families of containers, and only
with decoders on a list: a playlist or an address inside a file leads nowhere. PyAV is imported
here, and only when a video is opened.
"""

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from samgraph.errors import SamgraphError, VideoError
from samgraph.media.opening import shown
from samgraph.media.video_packets import NO_TIME, PacketList, list_packets, read_packets

FORMATS = "mov,mp4,m4a,3gp,3g2,mj2,matroska,webm,avi"
CODECS = (
    "h264", "hevc", "av1", "libdav1d", "libaom-av1", "vp8", "vp9", "libvpx", "libvpx-vp9", "mpeg4",
    "mpeg1video", "mpeg2video", "h263", "msmpeg4", "msmpeg4v2", "mjpeg", "prores", "dnxhd", "ffv1",
    "ffvhuff", "huffyuv", "utvideo", "png", "qtrle", "rawvideo", "theora", "vc1", "wmv3", "v210",
    "cinepak", "svq3", "dvvideo", "jpeg2000", "gif",
)  # fmt: skip
# A guard against files that make the reader of the container go round in circles.
SECONDS_TO_OPEN, SECONDS_TO_READ = 20.0, 20.0
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
                self._threads = 1
                raise _LostTailError from None
            return []
        return [(frame.pts, frame) for frame in frames if frame.pts is not None]

    def close(self) -> None:
        """Let go of the file."""
        self._packets = iter(())
        if self._container is not None:
            self._container.close()

    def _open(self) -> None:
        self.close()
        av = load_av()
        limits = {"max_pixels": str(self._max_pixels), "codec_whitelist": ",".join(CODECS)}
        with errors_named(self._label):
            self._container = av.open(
                self._path,
                mode="r",
                options={"format_whitelist": FORMATS, "protocol_whitelist": "file", **limits},
                metadata_errors="replace",
                timeout=(SECONDS_TO_OPEN, SECONDS_TO_READ),
            )
            self._stream = _video_stream(av, self._container, self._label, self._max_pixels)
            context = self._stream.codec_context
            self._threads = self._threads or _threads_for(context.width * context.height)
            context.thread_count = self._threads
            context.thread_type = "FRAME" if self._threads > 1 else "SLICE"
            context.options = limits

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


class _LostTailError(Exception):
    """With several threads, an error at the very end takes whole frames with it."""


class errors_named:  # noqa: N801 (used as a statement: `with errors_named(label)`)
    """Turns whatever comes out of PyAV into a `VideoError` that names the file."""

    def __init__(self, label: str) -> None:
        self._label = label

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if error is None or isinstance(error, SamgraphError) or not isinstance(error, Exception):
            return
        if isinstance(error, MemoryError):
            raise VideoError(f"{self._label} needs more memory than there is") from error
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise VideoError(
            f"{self._label} is damaged, or not a video of a kind that is read",
            got=shown(str(reason)).lower(),
            expected="MP4, MOV, Matroska, WebM or AVI, by content",
        ) from error


def load_av() -> ModuleType:
    """PyAV, or an error that says how to install it."""
    try:
        import av
    except ImportError as error:
        raise VideoError(
            "video files are read and written with PyAV, which is not installed",
            hint="pip install samgraph[video]",
        ) from error
    return av  # type: ignore[no-any-return]  # PyAV is untyped here


def checked_path(path: str | os.PathLike[str]) -> str:
    """The absolute path of a regular file that is not empty.

    Raises:
        VideoError: There is none, or what was given is an address.
    """
    text = os.fspath(path)
    label = f"`{shown(text)}`"
    try:
        status = Path(text).stat()
    except FileNotFoundError as error:
        if re.match(r"[A-Za-z][A-Za-z0-9+.-]+:", text):
            raise VideoError(
                f"{label} is an address, and videos are not fetched",
                hint="download it, then give the path of the file",
            ) from error
        hint = f"the current folder is `{Path.cwd()}`"
        raise VideoError(f"{label} does not exist", hint=hint) from error
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise VideoError(f"{label} cannot be opened", got=str(reason).lower()) from error
    if not stat.S_ISREG(status.st_mode):
        what = "a folder" if stat.S_ISDIR(status.st_mode) else "not a regular file"
        raise VideoError(f"{label} is {what}", expected="a video file")
    if not os.access(text, os.R_OK):
        raise VideoError(f"{label} cannot be opened", got="permission denied")
    if status.st_size == 0:
        raise VideoError(f"{label} is empty", got="0 bytes")
    return os.path.abspath(text)  # noqa: PTH100 (a file name may end in a dot or a slash)


def _chained(first: Any, rest: Iterator[Any]) -> Iterator[Any]:
    yield first
    yield from rest


def _threads_for(pixels: int) -> int:
    """How many threads decode: one for every million pixels."""
    cores = os.cpu_count() or 1
    return max(1, min(pixels // PIXELS_A_THREAD, MOST_THREADS, cores))


def _video_stream(av: ModuleType, container: Any, label: str, max_pixels: int) -> Any:
    """The main video stream; pictures attached to a sound track are none."""
    attached = av.stream.Disposition.attached_pic
    films = [s for s in container.streams.video if not s.disposition & attached]
    if not films:
        raise VideoError(f"{label} holds no video", got=f"{len(container.streams)} other streams")
    best = container.streams.best("video")
    stream = best if best in films else films[0]
    codec = stream.codec_context.name if stream.codec_context is not None else "an unknown codec"
    if codec not in CODECS:
        raise VideoError(
            f"{label} is coded in a way that is not read",
            got=shown(codec),
            hint="convert it to H.264 in MP4",
        )
    height, width = stream.codec_context.height, stream.codec_context.width
    if height * width > max_pixels:
        raise VideoError(
            f"{label} has {width:,} x {height:,} pixels",
            got=f"{height * width / 1e6:.1f} megapixels a frame",
            expected=f"at most {max_pixels / 1e6:g}",
            hint=f"make it smaller, or pass `max_pixels={height * width:_}`",
        )
    for other in container.streams:
        if other is not stream:
            other.discard = av.stream.Discard.all
    return stream

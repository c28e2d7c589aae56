"""Writing videos: H.264 in MP4, whole or not at all.

    with VideoWriter("out.mp4", (540, 960), rate=25) as video:
        for frame in frames:
            video.write(frame)

The video is written to a temporary file beside the destination, which is renamed at the end; after
an exception inside the block no new file is left, and an earlier file of that name is unchanged.
"""

import math
import os
import secrets
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from fractions import Fraction
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any, Self

import numpy as np

from samgraph.errors import ImageError, OptionError, OutputError, SamgraphError
from samgraph.media.files import unwritable
from samgraph.media.image.reading import Rgb
from samgraph.media.video.opening import load_av

FORMATS = {".mp4": "mp4", ".m4v": "mp4", ".mov": "mov", ".mkv": "matroska"}
# The 90 kHz clock of MPEG: common frame rates are whole numbers of ticks.
TICKS = 90_000
MOST_RATE = 1000
BT709, LIMITED_RANGE = 1, 1


class VideoWriter:
    """A video file being written.

    Frames of odd height or width are padded by repeating the last row or column, for 4:2:0 chroma
    subsampling. The codec is H.264 where PyAV has an encoder, else MPEG-4.

    Args:
        path: The file to write; `.mp4`, `.mov` or `.mkv`.
        size_hw: Height and width of all frames.
        rate: Frames per second, for frames written without a time.
        quality: H.264's constant rate factor: 18 is visually lossless, 23 x264's default.

    Raises:
        OutputError: The file cannot be written, or the suffix is not one of a video.
        VideoError: PyAV is missing.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        size_hw: tuple[int, int],
        *,
        rate: float | Fraction = 25,
        quality: int = 20,
    ) -> None:
        self._path = Path(path)
        self._size_hw = size_hw
        self._rate = _checked_rate(rate)
        self._count, self._last = 0, -1
        self._container: Any = None
        av = load_av()
        self._av = av
        container_format = _format_of(self._path)
        if min(size_hw) < 1:
            raise ImageError("a video needs pixels", got=f"{size_hw[1]} x {size_hw[0]}")
        self._temporary = self._path.with_name(
            f".{self._path.name[:64]}.{secrets.token_hex(6)}.part"
        )
        self._discard = weakref.finalize(self, _remove, self._temporary)
        with self._errors():
            # Created here, so that the operating system's reason for a failure is not lost in PyAV.
            self._temporary.open("xb").close()
            self._container = av.open(
                str(self._temporary.absolute()),
                "w",
                format=container_format,
                options={"movflags": "faststart"} if container_format != "matroska" else {},
            )
            self._stream = self._add_stream(av, quality)

    @property
    def frames(self) -> int:
        """The number of frames written."""
        return self._count

    def write(self, frame: Rgb, time: float | None = None) -> None:
        """Add a frame, uint8 RGB [H, W, 3]; `time` is in seconds from the start.

        A time not later than that of the previous frame is moved to just after it.

        Raises:
            ImageError: The frame has another size or type.
            OutputError: The disk is full, or the video has been closed.
        """
        self._check(frame)
        seconds = self._count / self._rate if time is None else time
        if not math.isfinite(seconds):
            raise OptionError("a frame is shown at a time", got=f"{seconds} s")
        ticks = max(round(seconds * TICKS), self._last + 1)
        height, width = self._size_hw
        padded = np.pad(frame, ((0, height % 2), (0, width % 2), (0, 0)), mode="edge")
        with self._errors():
            picture = self._av.VideoFrame.from_ndarray(np.ascontiguousarray(padded), "rgb24")
            picture = picture.reformat(
                format="yuv420p", dst_colorspace="itu709", dst_color_range="MPEG"
            )
            picture.pts, picture.time_base = ticks, Fraction(1, TICKS)
            self._container.mux(self._stream.encode(picture))
        self._count, self._last = self._count + 1, ticks

    def close(self) -> None:
        """Finish the video and rename it to its path. May be called twice.

        Raises:
            OutputError: The disk is full, or no frame was written.
        """
        if self._container is None:
            return
        if self._count == 0:
            self.abandon()
            raise OutputError(f"no frame was written to `{self._path}`")
        with self._errors():
            self._container.mux(self._stream.encode(None))
            container, self._container = self._container, None
            container.close()
            _sync(self._temporary)
            self._temporary.replace(self._path)
        self._discard.detach()

    def abandon(self) -> None:
        """Stop, and delete the temporary file."""
        container, self._container = self._container, None
        with suppress(Exception):  # deleted even where the container cannot be closed
            if container is not None:
                container.close()
        self._discard()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None:
            self.close()
        else:
            self.abandon()

    def _add_stream(self, av: ModuleType, quality: int) -> Any:
        is_h264 = "libx264" in av.codecs_available
        options = {"crf": str(quality), "preset": "veryfast"} if is_h264 else {}
        rate = Fraction(self._rate).limit_denominator(1001)
        stream = self._container.add_stream(
            "libx264" if is_h264 else "mpeg4", rate=rate, options=options
        )
        height, width = self._size_hw
        stream.width, stream.height = width + width % 2, height + height % 2
        stream.pix_fmt = "yuv420p"
        context = stream.codec_context
        context.time_base = Fraction(1, TICKS) if is_h264 else Fraction(1, 10_000)
        context.colorspace = context.color_primaries = context.color_trc = BT709
        context.color_range = LIMITED_RANGE
        if not is_h264:
            context.qscale, context.global_quality = True, 3
        return stream

    def _check(self, frame: Rgb) -> None:
        if self._container is None:
            raise OutputError(f"`{self._path}` has been closed")
        if frame.shape != (*self._size_hw, 3) or frame.dtype != np.uint8:
            raise ImageError(
                "a frame does not fit the video",
                got=f"{frame.dtype}{list(frame.shape)}",
                expected=f"uint8{[*self._size_hw, 3]}",
            )

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """On any exception abandon the video, and raise an `OutputError` or `VideoError`."""
        try:
            yield
        except SamgraphError:
            self.abandon()
            raise
        except Exception as error:
            self.abandon()
            raise unwritable(self._path, error) from error


def _format_of(path: Path) -> str:
    suffix = path.suffix.lower()
    if suffix not in FORMATS:
        raise OutputError(
            f"`{path}` does not say which kind of video to write",
            got=suffix or "no suffix",
            expected=", ".join(FORMATS),
        )
    return FORMATS[suffix]


def _checked_rate(rate: float | Fraction) -> Fraction:
    if not (math.isfinite(rate) and 0 < rate <= MOST_RATE):
        raise OptionError(
            "a video cannot have this rate",
            got=f"{rate} frames per second",
            expected=f"0 to {MOST_RATE}",
        )
    return Fraction(rate)


def _sync(path: Path) -> None:
    """Flush a file to disk before it is renamed."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove(path: Path) -> None:
    with suppress(OSError, ValueError):
        path.unlink()

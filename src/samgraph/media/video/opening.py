"""Opening a video file without trusting it.

Only paths of regular files are opened, only with the demuxers of three container families, and only
with decoders of an allow-list: URLs and playlists, given or inside a file, are not followed. PyAV
is imported here, when the first video is opened.
"""

import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from samgraph.errors import SamgraphError, VideoError
from samgraph.untrusted.text import shown

FORMATS = "mov,mp4,m4a,3gp,3g2,mj2,matroska,webm,avi"
CODECS = (
    "h264", "hevc", "av1", "libdav1d", "libaom-av1", "vp8", "vp9", "libvpx", "libvpx-vp9", "mpeg4",
    "mpeg1video", "mpeg2video", "h263", "msmpeg4", "msmpeg4v2", "mjpeg", "prores", "dnxhd", "ffv1",
    "ffvhuff", "huffyuv", "utvideo", "png", "qtrle", "rawvideo", "theora", "vc1", "wmv3", "v210",
    "cinepak", "svq3", "dvvideo", "jpeg2000", "gif",
)  # fmt: skip
# A guard against files that make the demuxer loop.
SECONDS_TO_OPEN, SECONDS_TO_READ = 20.0, 20.0
EBML, SEGMENT = b"\x1aE\xdf\xa3", b"\x18S\x80g"


@contextmanager
def errors_named(label: str) -> Iterator[None]:
    """Convert exceptions of PyAV to a `VideoError` that names the file."""
    try:
        yield
    except SamgraphError:
        raise
    except MemoryError as error:
        raise VideoError(f"{label} needs more memory than there is") from error
    except Exception as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise VideoError(
            f"{label} is damaged, or not a video of a kind that is read",
            got=shown(str(reason)).lower(),
            expected="MP4, MOV, Matroska, WebM or AVI, by content",
        ) from error


def load_av() -> ModuleType:
    """The module PyAV; raises an error that says how to install it."""
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
        VideoError: There is none, or the path is a URL.
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
    return os.path.abspath(text)


def open_container(path: str, label: str, max_pixels: int) -> tuple[Any, Any]:
    """The container and its main video stream, ready to decode."""
    av = load_av()
    limits = {"max_pixels": str(max_pixels), "codec_whitelist": ",".join(CODECS)}
    with errors_named(label):
        container = av.open(
            path,
            mode="r",
            options={"format_whitelist": FORMATS, "protocol_whitelist": "file", **limits},
            metadata_errors="replace",
            timeout=(SECONDS_TO_OPEN, SECONDS_TO_READ),
        )
        try:
            stream = _video_stream(av, container, label, max_pixels)
            stream.codec_context.options = limits
        except BaseException:
            container.close()
            raise
    return container, stream


def ends_early(path: str) -> bool:
    """Whether a Matroska file is shorter than its header declares."""
    with Path(path).open("rb") as file:
        beginning = file.read(4096)
        length = file.seek(0, os.SEEK_END)
    if not beginning.startswith(EBML):
        return False
    offset = beginning.find(SEGMENT)
    size = beginning[offset + 4 : offset + 12]
    if offset < 0 or not size or not size[0]:
        return False
    width = 9 - size[0].bit_length()
    if len(size) < width:
        return False
    value = int.from_bytes(size[:width]) - (1 << 7 * width)
    is_open_ended = value == (1 << 7 * width) - 1
    return not is_open_ended and offset + 4 + width + value > length


def _video_stream(av: ModuleType, container: Any, label: str, max_pixels: int) -> Any:
    """The main video stream; cover art does not count."""
    attached = av.stream.Disposition.attached_pic
    films = [s for s in container.streams.video if not s.disposition & attached]
    if not films:
        raise VideoError(f"{label} holds no video", got=f"{len(container.streams)} other streams")
    best = container.streams.best("video")
    stream = best if best in films else films[0]
    codec = stream.codec_context.name if stream.codec_context is not None else "an unknown codec"
    if codec not in CODECS:
        raise VideoError(
            f"{label} uses a codec that is not supported",
            got=shown(codec),
            hint="convert it to H.264 in MP4",
        )
    height, width = stream.codec_context.height, stream.codec_context.width
    if height * width > max_pixels:
        raise VideoError(
            f"{label} has {width:,} x {height:,} pixels",
            got=f"{height * width / 1e6:.1f} megapixels per frame",
            expected=f"at most {max_pixels / 1e6:g}",
            hint=f"make it smaller, or pass `max_pixels={height * width:_}`",
        )
    for other in container.streams:
        if other is not stream and hasattr(other, "discard"):  # older PyAV reads them for nothing
            other.discard = av.stream.Discard.all
    return stream

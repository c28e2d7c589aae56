"""Frame sources: lists, folders of images and iterators, and `open_frames` for any of them.

A source gives any frame by its index, as uint8 RGB [H, W, 3], decoding only what is requested:

    with open_frames("clip.mp4") as source:
        first = source.frame(0)

`open_frames` takes a video file, a folder of images, a list, an array [F, H, W, 3], or any
iterator. All frames of a source have one size. A frame that cannot be read raises an error, or,
with `on_damage="skip"`, a `MissingFrameError` for that frame alone; either way `source.damage`
lists what is wrong. Frames keep their indices: a missing frame leaves a gap.
"""

import os
import re
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from samgraph.errors import ImageError, OptionError, VideoError
from samgraph.media.image.opening import ImageSource
from samgraph.media.image.reading import MAX_PIXELS, Rgb, image_size, read_image
from samgraph.media.video.source import (
    Damage,
    FrameSource,
    MissingFrameError,
    OnDamage,
    check_frame_size,
    check_index,
    file_names,
    numbered_name,
    skips,
)
from samgraph.untrusted.arguments import whole
from samgraph.untrusted.files import real_path
from samgraph.untrusted.text import shown

__all__ = [
    "Damage",
    "FrameIterator",
    "FrameList",
    "FrameSource",
    "FramesSource",
    "ImageFolder",
    "MissingFrameError",
    "OnDamage",
    "natural_key",
    "open_frames",
]

FramesSource: TypeAlias = (
    "str | os.PathLike[str] | Sequence[ImageSource] | NDArray[Any] | Iterable[ImageSource]"
    " | FrameSource"
)

IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".tif", ".tiff", ".gif")
IMAGE_BEGINNINGS = (b"\xff\xd8\xff", b"\x89PNG", b"BM", b"II*\0", b"MM\0*", b"GIF8")
WINDOW = 16


class FrameList(FrameSource):
    """Frames given as a list of arrays, Pillow images, bytes or paths, or as one array.

    Sizes are compared at once, from headers; pixels are read on request and not cached.
    """

    def __init__(
        self,
        items: "Sequence[ImageSource] | NDArray[Any]",
        *,
        name: str = "the list of frames",
        on_damage: OnDamage = "error",
        max_pixels: int = MAX_PIXELS,
    ) -> None:
        if len(items) == 0:
            raise VideoError(f"{name} holds no frames")
        self._items, self._name = items, name
        self._skips, self._max_pixels = skips(on_damage), max_pixels
        self._decoded: set[int] = set()
        self._missing: dict[int, str] = {}
        self._names = file_names(items)
        self._size_hw = self._check_sizes()

    @property
    def name(self) -> str:
        """The name given to the list."""
        return self._name

    @property
    def length(self) -> int:
        """How many frames there are."""
        return len(self._items)

    @property
    def size_hw(self) -> tuple[int, int]:
        """Height and width of every frame."""
        return self._size_hw

    @property
    def damage(self) -> Damage:
        """The frames that cannot be read."""
        missing = tuple(sorted(self._missing))
        return Damage(None, len(self._items), len(self._decoded), missing)

    def frame(self, index: int) -> Rgb:
        """The frame as uint8 RGB; an array that already is that is not copied."""
        check_index(index, self.length, self._name)
        if index in self._missing:
            raise MissingFrameError(self._missing[index])
        try:
            pixels = read_image(self._items[index], max_pixels=self._max_pixels)
            check_frame_size(self._label(index), pixels.shape[:2], self._size_hw)
        except (ImageError, VideoError) as error:
            raise self._refusal(index, error) from error
        self._decoded.add(index)
        return pixels

    def time(self, index: int) -> float | None:
        """None: such frames carry no time."""
        check_index(index, len(self._items), self._name)
        return None

    def frame_name(self, index: int) -> str:
        """The file name of the frame, where all frames are files whose names differ."""
        check_index(index, self.length, self._name)
        return self._names[index] if self._names else numbered_name(index)

    def close(self) -> None:
        """Nothing is held open."""

    def _check_sizes(self) -> tuple[int, int]:
        size: tuple[int, int] | None = None
        for index, item in enumerate(self._items):
            try:
                found = image_size(item)
                size = size or found
                check_frame_size(self._label(index), found, size)
            except (ImageError, VideoError) as error:
                refusal = self._refusal(index, error)
                if not self._skips:
                    raise refusal from error
        if size is None:
            raise VideoError(
                f"no frame of {self._name} can be read", got=next(iter(self._missing.values()))
            )
        return size

    def _refusal(self, index: int, error: ImageError | VideoError) -> VideoError:
        """The error for a frame that cannot be read; recorded in `damage` if it may be skipped."""
        name = self._label(index)
        what = error.what if name in error.what else f"{name} cannot be used: {error.what}"
        if self._skips:
            self._missing[index] = what
            return MissingFrameError(what)
        return VideoError(what, got=error.got, expected=error.expected, hint=error.hint)

    def _label(self, index: int) -> str:
        item = self._items[index]
        if isinstance(item, str | os.PathLike):
            return f"`{shown(os.fspath(item))}`"
        return f"frame {index} of {self._name}"


class ImageFolder(FrameList):
    """A folder of images, one per frame, in natural order: `2.jpg` comes before `10.jpg`.

    Images are recognised by their suffix, or where that is unknown, by their first bytes. Hidden
    files, folders and other files are ignored.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        on_damage: OnDamage = "error",
        max_pixels: int = MAX_PIXELS,
    ) -> None:
        self.paths = image_files(folder)
        label = f"`{shown(os.fspath(folder))}`"
        super().__init__(self.paths, name=label, on_damage=on_damage, max_pixels=max_pixels)
        self._folder_name = Path(real_path(folder)).name

    @property
    def name(self) -> str:
        """The name of the folder."""
        return self._folder_name


class FrameIterator(FrameSource):
    """Frames from any iterator, such as a camera: forward only, the last few cached.

    The last `window` frames stay available; older frames are dropped. Frames are copied, so that an
    iterator may reuse its array. Exceptions of the iterator are passed on unchanged.
    """

    def __init__(
        self,
        items: Iterable[ImageSource],
        *,
        window: int = WINDOW,
        name: str = "the iterator of frames",
        max_pixels: int = MAX_PIXELS,
    ) -> None:
        if window < 1:
            raise OptionError("at least one frame must be kept", got=f"a window of {window}")
        self._items: Iterator[ImageSource] | None = iter(items)
        self._window, self._name, self._max_pixels = window, name, max_pixels
        self._kept: OrderedDict[int, Rgb] = OrderedDict()
        self._taken = 0
        self._lock = threading.Lock()
        if not self._take():
            raise VideoError(f"{name} gave no frames")
        self._size_hw: tuple[int, int] = self._kept[0].shape[:2]

    @property
    def name(self) -> str:
        """The name given to the iterator."""
        return self._name

    @property
    def length(self) -> int | None:
        """The number of frames, once the iterator has ended."""
        return self._taken if self._items is None else None

    @property
    def size_hw(self) -> tuple[int, int]:
        """Height and width of every frame."""
        return self._size_hw

    @property
    def damage(self) -> Damage:
        """The number of frames read so far."""
        return Damage(None, self.length, self._taken)

    def frame(self, index: int) -> Rgb:
        """The frame as uint8 RGB; advances the iterator as far as needed.

        Raises:
            VideoError: The frame has been dropped, or the iterator ended before it.
        """
        with self._lock:
            check_index(index, self.length, self._name)
            while index >= self._taken and self._take():
                pass
            check_index(index, self.length, self._name)
            if index in self._kept:
                return self._kept[index]
        raise VideoError(
            f"frame {index} of {self._name} has been dropped",
            got=f"frames {self._taken - len(self._kept)} to {self._taken - 1} are cached",
            hint="keep more with `cache_frames`, or give a list, a folder or a file",
        )

    def time(self, index: int) -> float | None:
        """None: such frames carry no time."""
        return None

    def close(self) -> None:
        """Drop the iterator and the cached frames."""
        self._items = None
        self._kept.clear()

    def _take(self) -> bool:
        """Read one frame; False at the end."""
        if self._items is None:
            return False
        try:
            item = next(self._items)
        except StopIteration:
            self._items = None
            return False
        label = f"frame {self._taken} of {self._name}"
        try:
            pixels = read_image(item, max_pixels=self._max_pixels)
        except ImageError as error:
            raise VideoError(
                f"{label} cannot be used: {error.what}", got=error.got, expected=error.expected
            ) from error
        if self._taken:
            check_frame_size(label, pixels.shape[:2], self._size_hw)
        self._kept[self._taken] = pixels.copy()
        self._taken += 1
        if len(self._kept) > self._window:
            self._kept.popitem(last=False)
        return True


def open_frames(
    source: FramesSource,
    *,
    on_damage: OnDamage = "error",
    cache_frames: int | None = None,
    max_pixels: int | None = None,
) -> FrameSource:
    """A frame source for a video; a `FrameSource` is returned unchanged.

    Args:
        source: The path of a video file or of a folder of images; a list, tuple or array
            [F, H, W, 3] of frames; or any iterator of frames.
        on_damage: What to do about a frame that cannot be decoded: raise `VideoError`, or skip it
            with a `MissingFrameError` and a note in `source.damage`.
        cache_frames: How many decoded frames a video file or an iterator caches.
        max_pixels: The most pixels a frame may have.

    Raises:
        VideoError: There are no frames, or they cannot be read. Addresses are not fetched.
    """
    skips(on_damage)
    cache_frames = cache_frames if cache_frames is None else whole("cache_frames", cache_frames, 1)
    max_pixels = max_pixels if max_pixels is None else whole("max_pixels", max_pixels, 1)
    if isinstance(source, FrameSource):
        return source
    pixels = MAX_PIXELS if max_pixels is None else max_pixels
    if isinstance(source, str | os.PathLike):
        return _open_path(os.fspath(source), on_damage, cache_frames, max_pixels)
    if isinstance(source, np.ndarray) and source.ndim == 4:
        return FrameList(source, name="the array", on_damage=on_damage, max_pixels=pixels)
    if isinstance(source, list | tuple):
        return FrameList(source, on_damage=on_damage, max_pixels=pixels)
    is_other = isinstance(
        source, bytes | bytearray | memoryview | dict | set | frozenset | np.ndarray
    ) or hasattr(source, "read")
    if isinstance(source, Iterable) and not is_other:
        return FrameIterator(source, window=cache_frames or WINDOW, max_pixels=pixels)
    array = isinstance(source, np.ndarray)
    kind = "an array" if array else f"a {type(source).__name__}"
    raise VideoError(
        "this is not a video",
        got=f"{kind} {list(cast('Any', source).shape)}" if array else kind,
        expected="a path, a list, an array [F, H, W, 3] or an iterator of frames",
        hint="open cameras and addresses yourself, and give an iterator of their frames",
    )


def natural_key(name: str) -> tuple[list[Any], str]:
    """A sort key that compares runs of digits as numbers: `img2` before `img10`."""
    parts: list[Any] = re.split(r"([0-9]+)", name.casefold())
    parts[1::2] = map(int, parts[1::2])
    return parts, name


def _open_path(
    path: str, on_damage: OnDamage, cache_frames: int | None, max_pixels: int | None
) -> FrameSource:
    if os.path.isdir(path):
        limit = MAX_PIXELS if max_pixels is None else max_pixels
        return ImageFolder(path, on_damage=on_damage, max_pixels=limit)
    from samgraph.media.video.file import MAX_FRAME_PIXELS, VideoFile

    limit = MAX_FRAME_PIXELS if max_pixels is None else max_pixels
    try:
        return VideoFile(path, on_damage=on_damage, cache_frames=cache_frames, max_pixels=limit)
    except VideoError as error:
        if not os.path.isfile(path) or not _is_image(Path(path)):
            raise
        raise VideoError(
            f"`{shown(path)}` is one image, not a video",
            hint="give the folder of all frames, or a list of them",
        ) from error


def image_files(folder: str | os.PathLike[str]) -> list[Path]:
    """The images directly in a folder, in natural order."""
    label = f"`{shown(os.fspath(folder))}`"
    try:
        with os.scandir(folder) as entries:
            files = [entry.name for entry in entries if entry.is_file()]
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise VideoError(f"{label} cannot be read", got=str(reason).lower()) from error
    visible = [name for name in files if not name.startswith(".")]
    images = [name for name in visible if _is_image(Path(folder, name))]
    if not images:
        raise VideoError(
            f"{label} holds no images",
            got=f"{len(visible)} files of other kinds" if visible else "no files",
            expected="JPEG, PNG, WebP, BMP, TIFF or GIF",
        )
    return [Path(folder, name) for name in sorted(images, key=natural_key)]


def _is_image(path: Path) -> bool:
    if path.suffix.lower() in IMAGE_SUFFIXES:
        return True
    if path.suffix and not path.suffix[1:].isdigit():
        return False
    try:
        with path.open("rb") as file:
            beginning = file.read(12)
    except OSError:
        return False
    return beginning.startswith(IMAGE_BEGINNINGS) or (
        beginning.startswith(b"RIFF") and beginning.endswith(b"WEBP")
    )

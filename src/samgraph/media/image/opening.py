"""Opening an image: from a path, bytes or a file object to a header read by Pillow.

Everything that fails here, or while the image is open, is raised as an `ImageError` with the
image's name.
"""

import io
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, TypeAlias, cast

from numpy.typing import NDArray
from PIL import (
    BmpImagePlugin,
    GifImagePlugin,
    Image,
    JpegImagePlugin,
    PngImagePlugin,
    TiffImagePlugin,
    UnidentifiedImageError,
    WebPImagePlugin,
)

from samgraph.errors import ImageError, SamgraphError
from samgraph.media.image.effort import MeteredFile
from samgraph.media.image.quiet import pillow_is_quiet, silence_libtiff
from samgraph.untrusted.files import NotRegularError, open_regular
from samgraph.untrusted.text import shown

# With its plugins imported by name, Pillow does not load its forty others on the first TIFF.
READERS = (
    JpegImagePlugin.JpegImageFile,
    PngImagePlugin.PngImageFile,
    WebPImagePlugin.WebPImageFile,
    BmpImagePlugin.BmpImageFile,
    TiffImagePlugin.TiffImageFile,
    GifImagePlugin.GifImageFile,
)
FORMATS = tuple(reader.format for reader in READERS)
MAX_BYTES = 1 << 30

ImageSource: TypeAlias = (
    str | os.PathLike[str] | bytes | bytearray | memoryview | IO[bytes] | Image.Image | NDArray[Any]
)


@contextmanager
def opened(source: ImageSource) -> Iterator[tuple[Image.Image, str]]:
    """The image with its header read, and its name; exceptions inside become an `ImageError`."""
    name = _name(source)
    try:
        with pillow_is_quiet():
            if isinstance(source, Image.Image):
                yield source, name
                return
            with _bytes_of(source, name) as file:
                metered = cast("IO[bytes]", MeteredFile(file, name))
                with Image.open(metered, formats=FORMATS) as image:
                    if image.format == "TIFF":
                        silence_libtiff()
                    yield image, name
    except SamgraphError:
        raise
    except UnidentifiedImageError as error:
        raise ImageError(
            f"{name} is not an image of a format that is read",
            expected="JPEG, PNG, WebP, BMP, TIFF or GIF, by content",
            hint="convert it to PNG or JPEG",
        ) from error
    except Image.DecompressionBombError as error:
        raise ImageError(
            f"{name} declares more pixels than are ever decoded",
            got=shown(str(error).partition(",")[0].lower()),
        ) from error
    except MemoryError as error:
        raise ImageError(f"{name} needs more memory than there is") from error
    except Exception as error:
        raise ImageError(
            f"{name} is damaged or cannot be decoded",
            got=shown(str(error)) or type(error).__name__,
        ) from error


def _bytes_of(source: ImageSource, name: str) -> IO[bytes]:
    """The source as a seekable binary file."""
    if isinstance(source, str | os.PathLike):
        return _open_path(os.fspath(source), name)
    if hasattr(source, "read"):
        data = _read_stream(cast("IO[bytes]", source), name)
    elif isinstance(source, bytes | bytearray | memoryview):
        data = bytes(source)
    else:
        raise ImageError(
            "this is not an image",
            got=f"a {type(source).__name__}",
            expected="a path, bytes, an open binary file, a Pillow image or an array",
        )
    if not data:
        raise ImageError(f"{name} is empty", got="0 bytes")
    return io.BytesIO(data)


def _open_path(path: str, name: str) -> IO[bytes]:
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]+://|data:", path):
        raise ImageError(
            f"{name} is an address, and images are not fetched",
            hint="download it, then give the path or the bytes",
        )
    try:
        file = open_regular(path)
    except FileNotFoundError as error:
        hint = f"the current folder is `{Path.cwd()}`"
        raise ImageError(f"{name} does not exist", hint=hint) from error
    except NotRegularError as error:
        what = error.strerror if error.strerror == "a folder" else "not a regular file"
        raise ImageError(f"{name} is {what}", expected="an image file") from error
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ImageError(f"{name} cannot be opened", got=str(reason).lower()) from error
    if os.fstat(file.fileno()).st_size == 0:
        file.close()
        raise ImageError(f"{name} is empty", got="0 bytes")
    return file


def _read_stream(stream: IO[bytes], name: str) -> bytes:
    """The rest of an open file; its position is restored if it is seekable."""
    start = stream.tell() if getattr(stream, "seekable", bool)() else None
    data = stream.read(MAX_BYTES + 1)
    if start is not None:
        stream.seek(start)
    if not isinstance(data, bytes):
        raise ImageError(f"{name} is open as text", hint='open it with `open(path, "rb")`')
    if len(data) > MAX_BYTES:
        raise ImageError(f"{name} is too large", got=f"over {MAX_BYTES:,} bytes")
    return data


def _name(source: ImageSource) -> str:
    """The image's name for messages: its path in backticks, or `the image`."""
    if isinstance(source, str | os.PathLike):
        return f"`{shown(os.fspath(source))}`"
    label = getattr(source, "filename", "") or getattr(source, "name", "")
    return f"`{shown(label)}`" if isinstance(label, str) and label else "the image"

"""Reading and writing images; in memory an image is upright uint8 RGB, [H, W, 3].

Files are recognised by their content, never by their name, and only six formats are read: JPEG,
PNG, WebP, BMP, TIFF and GIF. The pixel limit is checked against the header, before any pixel is
decoded. Whatever is wrong with an image raises an `ImageError`; no exception or warning of Pillow
escapes.

Conventions:

* alpha is dropped, not blended, as the reference's `convert("RGB")` does; a palette's transparency
  likewise;
* 16 bits become 8 by keeping the high byte; floats are in 0..1;
* an animation is read as its first frame;
* the EXIF orientation is applied, so that x and y are as displayed.
  Differs from the original: the reference ignores the orientation.
"""

import io
import os
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from samgraph.errors import ImageError, OutputError
from samgraph.media.files import write_atomically
from samgraph.media.image.effort import check_scans
from samgraph.media.image.opening import ImageSource, opened
from samgraph.untrusted.arguments import whole
from samgraph.untrusted.text import shown

MAX_PIXELS = 64_000_000
# The limit of JPEG and GIF. Larger sides come from damaged headers: five million rows of ten pixels
# are within the pixel limit, and took Pillow four seconds.
MAX_SIDE = 65_535
ORIENTATION_TAG = 0x0112
UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
SUFFIXES = {
    ".png": "PNG",
    ".jpg": "JPEG",
    ".jpeg": "JPEG",
    ".webp": "WEBP",
    ".bmp": "BMP",
    ".tif": "TIFF",
    ".tiff": "TIFF",
}
WRITTEN_CHANNELS = ((), (3,), (4,))

Rgb: TypeAlias = NDArray[np.uint8]


def read_image(source: ImageSource, *, max_pixels: int = MAX_PIXELS) -> Rgb:
    """The image as uint8 RGB, [H, W, 3], upright.

    An array that already is uint8 RGB is not copied.

    Args:
        source: A path, the bytes of a file, an open binary file, a Pillow image, or an array:
            [H, W], [H, W, 1], [H, W, 3] or [H, W, 4] of bool, uint8, uint16, or floats in 0..1.
        max_pixels: The most pixels accepted, checked in the header. Pillow's own limit of about
            179 million applies too.

    Raises:
        ImageError: The image is missing, damaged, too large, or of a format that is not read.
    """
    if _is_array(source):
        return _array_to_rgb(_as_array(source), max_pixels)
    with opened(source) as (image, name):
        check_size(name, image.height, image.width, max_pixels)
        check_scans(image, name)
        image.load()
        upright = UPRIGHT.get(_orientation(image))
        image = _eight_bits(image, name)
        image = image if image.mode == "RGB" else image.convert("RGB")
        return np.array(image if upright is None else image.transpose(upright))


def image_size(source: ImageSource) -> tuple[int, int]:
    """Height and width of the upright image, from the header alone.

    The orientation of a PNG is ignored where it is stored after the pixels, which is rare.

    Raises:
        ImageError: The image is missing, damaged, or of a format that is not read.
    """
    if _is_array(source):
        array = _as_array(source)
        _check_shape(array)
        return array.shape[0], array.shape[1]
    with opened(source) as (image, _):
        # Pillow applies a TIFF's orientation itself; `getexif` of a PNG may decode the pixels.
        known = image.format != "TIFF" and (image.format != "PNG" or "exif" in image.info)
        is_transposed = known and _orientation(image) in (5, 6, 7, 8)
        return (image.width, image.height) if is_transposed else (image.height, image.width)


def read_label_image(source: ImageSource, *, max_pixels: int = MAX_PIXELS) -> NDArray[np.uint8]:
    """The label map of a palette or grey image, uint8 [H, W]: the object id of each pixel.

    Raises:
        ImageError: As `read_image`, or the image is RGB.
    """
    with opened(source) as (image, name):
        check_size(name, image.height, image.width, max_pixels)
        if image.mode not in ("P", "L", "1"):
            raise ImageError(
                f"{name} does not hold one number per pixel",
                got=f"colours ({image.mode})",
                expected="a palette or grey image of 8 bits",
            )
        check_scans(image, name)
        return np.array(image, np.uint8)


def encode_image(
    array: NDArray[Any], image_format: str = "PNG", *, quality: int = 95, palette: bytes = b""
) -> bytes:
    """An image file as bytes, from uint8 [H, W], [H, W, 3] or [H, W, 4], or bool or uint16 [H, W].

    Only pixels are written: no date, no software name, no EXIF. With `palette` (RGB triples),
    uint8 [H, W] becomes a palette image.
    """
    allowed = (np.uint8, np.bool_, np.uint16) if array.ndim == 2 else (np.uint8,)
    fits = array.ndim in (2, 3) and array.shape[2:] in WRITTEN_CHANNELS
    if array.dtype not in allowed or not fits:
        raise ImageError(
            "an array of this kind cannot be written as an image",
            got=f"{array.dtype}{list(array.shape)}",
            expected="uint8 [H, W], [H, W, 3] or [H, W, 4]",
        )
    if not array.size:
        raise ImageError("an image without pixels cannot be written", got=f"{list(array.shape)}")
    image = Image.fromarray(np.ascontiguousarray(array))
    if palette:
        image.putpalette(palette)
    buffer = io.BytesIO()
    try:
        image.save(buffer, image_format, quality=quality)
    except (OSError, ValueError, KeyError) as error:
        raise OutputError(
            f"these pixels cannot be written as {image_format}",
            got=f"{array.dtype}{list(array.shape)}",
            hint="write a PNG",
        ) from error
    return buffer.getvalue()


def write_image(path: str | os.PathLike[str], array: NDArray[Any], *, quality: int = 95) -> None:
    """Write pixels to a file whose suffix names the format, whole or not at all.

    Raises:
        OutputError: The file cannot be written, or the suffix is not one of an image.
    """
    suffix = Path(path).suffix.lower()
    if suffix not in SUFFIXES:
        raise OutputError(
            f"`{path}` does not say which kind of image to write",
            got=suffix or "no suffix",
            expected=", ".join(SUFFIXES),
        )
    write_atomically(path, encode_image(array, SUFFIXES[suffix], quality=quality))


def write_png(path: str | os.PathLike[str], array: NDArray[Any]) -> None:
    """Write pixels as PNG whatever the suffix; see `write_image`."""
    write_atomically(path, encode_image(array))


def check_size(name: str, height: int, width: int, max_pixels: int) -> None:
    """Raise `ImageError` for too many pixels or impossible sides; `name` is for the message."""
    if height * width > whole("max_pixels", max_pixels, 1):
        raise ImageError(
            f"{name} has {width:,} x {height:,} pixels",
            got=f"{height * width / 1e6:.1f} megapixels",
            expected=f"at most {max_pixels / 1e6:g}",
            hint=f"make it smaller, or pass `max_pixels={height * width:_}`",
        )
    if not (1 <= height <= MAX_SIDE and 1 <= width <= MAX_SIDE):
        raise ImageError(
            f"{name} has an impossible size",
            got=f"{width:,} x {height:,} pixels",
            expected=f"sides of 1 to {MAX_SIDE:,}",
        )


def _orientation(image: Image.Image) -> int:
    """The EXIF orientation, 1 to 8; 1 (upright) where the metadata is damaged."""
    try:
        value = image.getexif().get(ORIENTATION_TAG, 1)
    except Exception:
        return 1
    return value if isinstance(value, int) and 1 <= value <= 8 else 1


def _eight_bits(image: Image.Image, name: str) -> Image.Image:
    """The same image in a mode that Pillow converts to RGB without clipping."""
    if image.mode == "LAB":
        raise ImageError(f"{name} has its colours in L*a*b*", hint="convert it to RGB")
    if image.mode in ("RGBa", "La"):
        return image.convert({"RGBa": "RGBA", "La": "LA"}[image.mode])
    if image.mode != "F" and not image.mode.startswith("I"):
        return image
    values = np.asarray(image)
    if image.mode == "I" and values.min() >= 0 and values.max() <= 0xFFFF:
        values = values.astype(np.uint16)
    return Image.fromarray(_to_bytes(values, name))


def _to_bytes(values: NDArray[Any], name: str) -> Rgb:
    """Values of any dtype as uint8, by the conventions in the module docstring."""
    if values.dtype == np.uint8:
        return values
    if values.dtype == np.bool_:
        return values.astype(np.uint8) * np.uint8(255)
    if values.dtype.kind == "u" and values.dtype.itemsize == 2:
        return np.asarray(values >> 8, np.uint8)
    if values.dtype.kind not in "iuf":
        raise ImageError(f"{name} does not hold numbers", got=str(values.dtype))
    low, high = float(values.min()), float(values.max())
    if values.dtype.kind == "f":
        if not -1e-3 <= low <= high <= 1 + 1e-3:
            raise ImageError(
                f"{name} holds floats outside 0..1",
                got=f"{low:g} to {high:g}",
                hint="divide by the value that means white, such as 255",
            )
        return np.asarray(np.rint(values.clip(0, 1) * 255), np.uint8)
    if low < 0 or high > 255:
        raise ImageError(
            f"{name} holds {values.dtype} values outside 0..255",
            got=f"{low:g} to {high:g}",
            hint="scale it to uint8 or uint16",
        )
    return values.astype(np.uint8)


def _is_array(source: object) -> bool:
    return isinstance(source, np.ndarray) or (
        hasattr(source, "__array__") and not isinstance(source, Image.Image | bytes)
    )


def _as_array(source: object) -> NDArray[Any]:
    try:
        return np.asarray(source)
    except Exception as error:
        raise ImageError(
            f"a {type(source).__name__} cannot be read as an array",
            got=shown(str(error)),
            hint="give a numpy array in main memory",
        ) from error


def _check_shape(array: NDArray[Any]) -> None:
    if array.ndim in (2, 3) and array.shape[2:] in ((), (1,), (3,), (4,)):
        return
    planar = array.ndim == 3 and array.shape[0] in (1, 3, 4)
    raise ImageError(
        "an array of this shape is not an image",
        got=f"{list(array.shape)}",
        expected="[H, W], [H, W, 1], [H, W, 3] or [H, W, 4]",
        hint="channels go last: `array.transpose(1, 2, 0)`" if planar else None,
    )


def _array_to_rgb(array: NDArray[Any], max_pixels: int) -> Rgb:
    _check_shape(array)
    name = "the array"
    check_size(name, array.shape[0], array.shape[1], max_pixels)
    pixels = _to_bytes(array, name)
    if pixels.ndim == 2:
        pixels = pixels[:, :, None]
    if pixels.shape[2] == 1:
        pixels = np.repeat(pixels, 3, axis=2)
    return np.ascontiguousarray(pixels[:, :, :3])

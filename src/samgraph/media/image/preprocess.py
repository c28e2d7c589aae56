"""Preprocessing of images and frames for the model, and upscaling of its masks.

The reference resizes in two ways:

* `resize_image`, for single images: bytes to floats, an antialiased bilinear resize of the floats
  (`torch.nn.functional.interpolate(..., antialias=True)`), then normalise;
* `resize_video_frame`, for frames: Pillow's default (bicubic) resize of the bytes, then normalise.

Both squash to a square of S x S; the aspect ratio is not kept.

Masks are upscaled by bilinear interpolation, `align_corners=False`, no antialias.

Every resize here is separable: two products with a banded matrix, for the rows and for the columns.
The band is split into blocks, each a small dense matrix, so that numpy's matrix product does the
work: 12 megapixels to 1024 in about 80 ms on one core, where Pillow's float resize takes 270
(2026-11). Positions and weights are computed in float32, as torch does: at column 4000 a float32
position is off by 1e-4 of a pixel, and results agree only with the same rounding.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from samgraph.errors import ImageError

Floats = NDArray[np.float32]
Blocks = tuple[tuple[slice, slice, Floats], ...]

Rgb: TypeAlias = tuple[float, float, float]
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
# Output rows and columns per block; fastest of those tried on an image of 12 megapixels.
ROW_BLOCK, COLUMN_BLOCK = 16, 32
MASK_BLOCK = 32
# Above this many multiply-adds OpenBLAS uses all cores and waits for the slowest: with the other
# core busy, a mask took 290 ms instead of 5. Smaller products stay on one core.
ONE_CORE = 1 << 18


def resize_image(
    image: NDArray[np.uint8], size: int, *, mean: Rgb = MEAN, std: Rgb = STD
) -> Floats:
    """A still image resized and normalised for the model: uint8 RGB [H, W, 3] -> float32 [3, S, S].

    Equal to the reference's ToTensor, Resize(antialias=True), Normalize within 1e-6.
    """
    height, width = _check_rgb(image)
    # Where one axis shrinks and the other grows, the longer is resized first: the intermediate
    # result of a long thin image would be huge otherwise.
    if height < size < width:
        transposed = _resize_antialiased(image.transpose(1, 0, 2), size, mean, std)
        return transposed.transpose(0, 2, 1).copy()
    return _resize_antialiased(image, size, mean, std)


def resize_video_frame(
    frame: NDArray[np.uint8], size: int, *, mean: Rgb = MEAN, std: Rgb = STD
) -> Floats:
    """A video frame resized and normalised for the model: uint8 RGB [H, W, 3] -> float32 [3, S, S].

    Bit-exact with the reference's loader of JPEG folders: normalised values are looked up in a
    table of 256 per channel.
    """
    _check_rgb(frame)
    small = np.asarray(Image.fromarray(np.ascontiguousarray(frame)).resize((size, size)))
    unit = (np.arange(256) / 255.0).astype(np.float32)
    out = np.empty((3, size, size), np.float32)
    for channel in range(3):
        table = (unit - np.float32(mean[channel])) / np.float32(std[channel])
        np.take(table, small[:, :, channel], out=out[channel])
    return out


def upscale_logits(low: NDArray[np.floating], size_hw: tuple[int, int]) -> Floats:
    """Mask logits at the image's resolution: [N, h, w] or [h, w] -> float32 [..., H, W]."""
    stack = _check_logits(low)
    out = np.empty((len(stack), *size_hw), np.float32)
    for logits, target in zip(stack, out, strict=True):
        for rows, _, block in upscaled_blocks(logits, size_hw):
            target[rows] = block
    return out.reshape(*low.shape[:-2], *size_hw)


def upscale_masks(
    low: NDArray[np.floating], size_hw: tuple[int, int], threshold: float = 0.0
) -> NDArray[np.bool_]:
    """Where upscaled logits exceed the threshold: [N, h, w] or [h, w] -> bool [..., H, W].

    Only a few rows of upscaled logits are in memory at a time.
    """
    stack = _check_logits(low)
    out = np.zeros((len(stack), *size_hw), np.bool_)
    for logits, target in zip(stack, out, strict=True):
        for rows, columns, block in upscaled_blocks(logits, size_hw, threshold):
            np.greater(block, np.float32(threshold), out=target[rows, columns])
    return out.reshape(*low.shape[:-2], *size_hw)


def _resize_antialiased(image: NDArray[np.uint8], size: int, mean: Rgb, std: Rgb) -> Floats:
    """Resize rows, then columns, block by block of rows; then normalise."""
    height, width = image.shape[:2]
    columns = list(_antialias_blocks(width, size, COLUMN_BLOCK))
    out = np.empty((3, size, size), np.float32)
    for rows, source, weights in _antialias_blocks(height, size, ROW_BLOCK):
        strip = image[source].reshape(source.stop - source.start, -1).astype(np.float32)
        shrunk = _multiply(weights, strip).reshape(len(weights), width, 3)
        transposed = np.ascontiguousarray(shrunk.transpose(1, 2, 0)).reshape(width, -1)
        for target, window, kernel in columns:
            block = _multiply(kernel, transposed[window]).reshape(len(kernel), 3, len(weights))
            out[:, rows, target] = block.transpose(1, 2, 0)
    out /= np.float32(255)
    out -= np.array(mean, np.float32)[:, None, None]
    out /= np.array(std, np.float32)[:, None, None]
    return out


def _antialias_blocks(length: int, size: int, block: int) -> Iterator[tuple[slice, slice, Floats]]:
    """For each block: the output range, the input range, and the weights of the triangle filter.

    The filter's support is an output pixel, or an input pixel where that is larger.
    """
    scale = np.float32(length) / np.float32(size)
    support = max(scale, np.float32(1))
    for start in range(0, size, block):
        stop = min(start + block, size)
        centre = scale * (np.arange(start, stop, dtype=np.float32) + np.float32(0.5))
        first = max(int(centre[0] - support + np.float32(0.5)), 0)
        last = min(int(centre[-1] + support + np.float32(0.5)), length)
        offset = np.arange(first, last, dtype=np.float32)[None] - centre[:, None]
        distance = np.abs(offset + np.float32(0.5)) / support
        weights = np.maximum(np.float32(1) - distance, np.float32(0))
        weights /= weights.sum(axis=1, keepdims=True)
        yield slice(start, stop), slice(first, last), weights


def upscaled_blocks(
    logits: NDArray[np.floating], size_hw: tuple[int, int], above: float | None = None
) -> Iterator[tuple[slice, slice, Floats]]:
    """The upscaled logits of one mask in blocks: rows, columns, values.

    With `above`, only blocks whose values may exceed it.
    """
    rows, columns = (
        _bilinear_blocks(n, size) for n, size in zip(logits.shape, size_hw, strict=True)
    )
    if above is not None:
        higher = np.asarray(logits > above)
        rows = _reaching(rows, np.asarray(higher.any(axis=1)))
        columns = _reaching(columns, np.asarray(higher.any(axis=0)))
    if not rows or not columns:
        return
    used = slice(rows[0][1].start, rows[-1][1].stop)
    span = slice(columns[0][0].start, columns[-1][0].stop)
    transposed = np.ascontiguousarray(logits[used].T, np.float32)
    wide = np.empty((used.stop - used.start, span.stop - span.start), np.float32)
    for target, source, weights in columns:
        wide[:, _shift(target, span)] = _multiply(weights, transposed[source]).T
    for target, source, weights in rows:
        yield target, span, _multiply(weights, wide[_shift(source, used)])


def _reaching(blocks: Blocks, wanted: NDArray[np.bool_]) -> Blocks:
    """The blocks from the first to the last that read a wanted row."""
    hits = [i for i, (_, source, _) in enumerate(blocks) if wanted[source].any()]
    return blocks[hits[0] : hits[-1] + 1] if hits else ()


def _shift(span: slice, origin: slice) -> slice:
    return slice(span.start - origin.start, span.stop - origin.start)


@lru_cache(maxsize=32)
def _bilinear_blocks(length: int, size: int) -> Blocks:
    """As `_antialias_blocks`, with the two taps of bilinear interpolation; cached."""
    scale = np.float32(length) / np.float32(size)
    blocks = []
    for start in range(0, size, MASK_BLOCK):
        stop = min(start + MASK_BLOCK, size)
        position = np.float64(scale) * (np.arange(start, stop) + 0.5) - 0.5  # torch fuses the two
        position = np.maximum(position, 0).astype(np.float32)
        below = np.minimum(position.astype(np.int64), length - 1)
        above = np.minimum(below + 1, length - 1)
        share = position - below.astype(np.float32)
        first, last = int(below[0]), int(above[-1]) + 1
        weights = np.zeros((stop - start, last - first), np.float32)
        each = np.arange(stop - start)
        weights[each, below - first] += np.float32(1) - share
        weights[each, above - first] += share
        blocks.append((slice(start, stop), slice(first, last), weights))
    return tuple(blocks)


def _multiply(weights: Floats, values: Floats) -> Floats:
    """`weights @ values`, in products small enough to stay on one core."""
    out = np.empty((len(weights), values.shape[1]), np.float32)
    step = max(16, ONE_CORE // weights.size)
    for start in range(0, values.shape[1], step):
        part = slice(start, start + step)
        np.matmul(weights, values[:, part], out=out[:, part])
    return out


def _check_rgb(image: NDArray[np.uint8]) -> tuple[int, int]:
    if image.ndim != 3 or image.shape[2] != 3 or image.dtype != np.uint8 or not image.size:
        raise ImageError(
            "the model takes RGB images",
            got=f"{image.dtype}{list(image.shape)}",
            expected="uint8 [H, W, 3]",
            hint="read it with `samgraph.media.image.reading.read_image`",
        )
    return image.shape[0], image.shape[1]


def _check_logits(low: NDArray[np.floating]) -> NDArray[np.floating]:
    if low.ndim < 2 or low.dtype.kind != "f" or not min(low.shape[-2:]):
        raise ImageError(
            "mask logits have an unknown shape",
            got=f"{low.dtype}{list(low.shape)}",
            expected="floats [N, h, w] or [h, w]",
        )
    return low.reshape(-1, *low.shape[-2:])

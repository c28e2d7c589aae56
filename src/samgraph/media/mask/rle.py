"""COCO run-length encoding of masks, as pycocotools writes it.

A mask is read in column-major order; the runs alternate, beginning with background (a first run of
0 where the top left pixel is set). There are two encodings of the runs:

* *uncompressed*, as SAM's automatic masks: ``{"size": [H, W], "counts": [5, 3, 92]}``;
* *compressed*, the usual: each run from the fourth on minus the run two before, in groups of five
  bits, least significant first, bit 5 the continuation bit, plus 48 so that it is ASCII.

The mask is not transposed to find the runs: each row is compared with the row above, eight pixels
at once, and the few changes are sorted by column. A 1024 x 1024 mask takes 0.4 ms.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice, pairwise
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from samgraph.errors import ImageError

Mask = NDArray[np.bool_]
Counts = NDArray[np.int64]

MAX_PIXELS = 1 << 28
BATCH = 64
PIXELS_AT_ONCE = 1 << 22
# The largest magnitude that fits in 1, 2, ... 7 groups of five bits with their sign.
GROUP_LIMITS = 1 << (5 * np.arange(1, 8) - 1)


class Rle(TypedDict):
    """A compressed run-length encoding; `size` is [H, W]."""

    size: list[int]
    counts: bytes


def encode(mask: Mask) -> Rle:
    """The encoding of one mask, bool [H, W]."""
    return encode_many([mask])[0]


def encode_many(masks: Iterable[Mask]) -> list[Rle]:
    """The encodings of many masks: an array [N, H, W], or any iterable of [H, W]."""
    made = ((*_check_mask(mask), _runs(mask)) for mask in masks)
    out: list[Rle] = []
    while batch := list(islice(made, BATCH)):  # strings are made for a batch at once
        counts = [runs for _, _, runs in batch]
        texts = _strings(np.concatenate(counts), [len(runs) for runs in counts])
        for (height, width, _), text in zip(batch, texts, strict=True):
            out.append({"size": [height, width], "counts": text})
    return out


def encode_at(window: Mask, top: int, left: int, size_hw: tuple[int, int]) -> Rle:
    """The encoding of a mask of `size_hw` that is `window` at (top, left), and empty elsewhere.

    Costs time and memory for the window alone.
    """
    changes = np.zeros(0, np.int64)
    if window.size:
        changes = np.cumsum(_runs(np.pad(window, ((0, 1), (0, 0)))))[:-1]
    return encode_changes(changes, window.shape[0] + 1, top, left, size_hw)


def encode_columns(
    columns: NDArray[np.uint8], top: int, left: int, size_hw: tuple[int, int]
) -> Rle:
    """As `encode_at`, for a transposed window: [W, H + 1] of 0 and 1, the last column 0."""
    flat = columns.reshape(-1)
    found = [np.zeros(1 if flat.size and flat[0] else 0, np.int64)]
    for first in range(0, max(flat.size - 1, 0), PIXELS_AT_ONCE):
        part = flat[first : first + PIXELS_AT_ONCE + 1]
        found.append(np.flatnonzero(part[1:] != part[:-1]) + first + 1)
    return encode_changes(np.concatenate(found), columns.shape[1], top, left, size_hw)


def encode_changes(
    changes: Counts, stride: int, top: int, left: int, size_hw: tuple[int, int]
) -> Rle:
    """The encoding of a window whose runs begin and end at `changes`, columns of `stride` apart."""
    height, width = size_hw
    column = changes // stride
    edges = (column + left) * height + top + changes - column * stride
    begin, end = edges[0::2], edges[1::2]
    if len(begin):  # a run may continue at the top of the next column
        apart = begin[1:] != end[:-1]
        begin, end = begin[np.append(True, apart)], end[np.append(apart, True)]
    edges = np.stack([begin, end], axis=1).ravel()
    rest = [] if len(end) and end[-1] == height * width else [height * width]
    flat: Counts = np.concatenate([[0], edges, rest]).astype(np.int64)
    return {"size": [height, width], "counts": counts_to_string(flat[1:] - flat[:-1])}


def decode(rle: Mapping[str, Any], *, max_pixels: int = MAX_PIXELS) -> Mask:
    """The mask, bool [H, W], of a compressed or uncompressed encoding.

    Raises:
        ImageError: The runs are damaged, do not add up to the size, or the size is too large.
    """
    height, width = _size(rle, max_pixels)
    counts = counts_of(rle, max_pixels=max_pixels)
    values = np.zeros(len(counts), np.bool_)
    values[1::2] = True
    return np.ascontiguousarray(np.repeat(values, counts).reshape(width, height).T)


def counts_of(rle: Mapping[str, Any], *, max_pixels: int = MAX_PIXELS) -> Counts:
    """The runs of a compressed or uncompressed encoding, checked against its size.

    Raises:
        ImageError: As `decode`.
    """
    height, width = _size(rle, max_pixels)
    written = rle.get("counts")
    if isinstance(written, str | bytes):
        counts = string_to_counts(written)
    else:
        counts = _listed_counts(written)
    total = sum(counts.tolist())
    if total != height * width or (counts < 0).any():
        raise ImageError(
            "a run-length encoding does not cover its mask",
            got=f"{total} pixels" if total != height * width else "a negative run",
            expected=f"{height * width} pixels, {height} x {width}",
        )
    return counts


def from_counts(counts: Sequence[int] | Counts, size_hw: tuple[int, int]) -> Rle:
    """A compressed encoding from runs in column-major order, beginning with background."""
    rle = {"size": list(size_hw), "counts": counts}
    return {"size": [int(n) for n in size_hw], "counts": counts_to_string(counts_of(rle))}


def uncompressed(rle: Mapping[str, Any]) -> dict[str, list[int]]:
    """The uncompressed encoding, as in SAM's automatic masks."""
    return {"size": [int(n) for n in rle["size"]], "counts": counts_of(rle).tolist()}


def to_json(rle: Mapping[str, Any]) -> dict[str, Any]:
    """The compressed encoding with `counts` as text, for JSON."""
    counts = rle["counts"]
    if not isinstance(counts, str | bytes):
        counts = counts_to_string(counts_of(rle))
    text = counts.decode("ascii") if isinstance(counts, bytes) else counts
    return {"size": [int(n) for n in rle["size"]], "counts": text}


def area(rle: Mapping[str, Any]) -> int:
    """The number of pixels in the mask."""
    return int(counts_of(rle)[1::2].sum())


def to_bbox(rle: Mapping[str, Any]) -> tuple[int, int, int, int]:
    """The tight box of the mask as (x, y, width, height); all 0 for an empty mask."""
    height = int(rle["size"][0])
    counts = counts_of(rle)
    stops = np.cumsum(counts)[1::2]
    lengths = counts[1::2]
    starts, last = (stops - lengths)[lengths > 0], stops[lengths > 0] - 1
    if not len(starts):
        return 0, 0, 0, 0
    left, right = int(starts[0] // height), int(last[-1] // height)
    if (starts // height != last // height).any():
        top, bottom = 0, height - 1
    else:
        top, bottom = int((starts % height).min()), int((last % height).max())
    return left, top, right - left + 1, bottom - top + 1


def counts_to_string(counts: Sequence[int] | Counts) -> bytes:
    """The compressed string of runs."""
    runs = np.asarray(counts, np.int64)
    return _strings(runs, [len(runs)])[0]


def string_to_counts(text: str | bytes) -> Counts:
    """The runs of a compressed string.

    Raises:
        ImageError: It has invalid characters, ends inside a number, or a number is too large.
    """
    data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    symbols = np.frombuffer(data, np.uint8).astype(np.int64) - 48
    if not len(symbols):
        return np.zeros(0, np.int64)
    if symbols.min() < 0 or symbols.max() > 63 or symbols[-1] & 32:
        raise _damaged("a compressed run-length text is damaged")
    ends = np.flatnonzero(symbols & 32 == 0) + 1
    starts = np.concatenate([[0], ends[:-1]])
    groups = ends - starts
    if groups.max() > 7:
        raise _damaged("a run in a compressed run-length text is too large")
    ordinal = np.arange(len(symbols)) - np.repeat(starts, groups)
    values = np.add.reduceat((symbols & 31) << (5 * ordinal), starts)
    values -= ((symbols[ends - 1] >> 4) & 1) << (5 * groups)
    # Undo the differences: the even and the odd runs are two chains, and run 0 is in neither.
    values[1::2] = np.cumsum(values[1::2])
    values[2::2] = np.cumsum(values[2::2])
    return values


def _runs(mask: Mask) -> Counts:
    """The runs of a mask in column-major order, beginning with background."""
    height, width = mask.shape
    columns = -(-width // 8) * 8
    if columns != width:
        mask = np.pad(mask, ((0, 0), (0, columns - width)))
    eights = np.ascontiguousarray(mask).view(np.uint64).reshape(-1)
    above, below = eights[: -columns // 8], eights[columns // 8 :]
    words = np.flatnonzero(above != below)
    hits = np.flatnonzero((above[words] ^ below[words]).view(np.bool_))
    flat = words[hits >> 3] * 8 + (hits & 7)
    row = flat // columns  # divmod takes five times as long
    wrapped = np.flatnonzero(mask[0, 1:width] != mask[-1, : width - 1]) + 1
    inner = (flat - row * columns) * height + row + 1
    changes = np.concatenate([inner, wrapped * height, [0, height * width]])
    changes.sort()
    counts = np.diff(changes)
    return np.concatenate([[0], counts]) if mask[0, 0] else counts


def _strings(counts: Counts, lengths: Sequence[int]) -> list[bytes]:
    """The compressed strings of several masks whose runs are concatenated."""
    stops = np.cumsum(lengths)
    ordinal = np.arange(len(counts)) - np.repeat(stops - lengths, lengths)
    values = counts.copy()
    values[2:] -= np.where(ordinal[2:] > 2, counts[:-2], 0)
    groups = 1 + np.searchsorted(GROUP_LIMITS, np.where(values < 0, ~values, values), side="right")
    ends = np.cumsum(groups)
    starts = ends - groups
    text = np.empty(int(groups.sum()), np.uint8)
    while len(values):  # a group of bits of every number that has one left
        more = groups > 1
        text[starts] = (values & 31) + np.where(more, 80, 48)
        values, starts, groups = values[more] >> 5, starts[more] + 1, groups[more] - 1
    edges = [0, *(ends[stops - 1].tolist() if len(ends) else [0] * len(lengths))]
    return [text[start:stop].tobytes() for start, stop in pairwise(edges)]


def _listed_counts(counts: object) -> Counts:
    """The runs of an uncompressed encoding; they must be whole and fit in 63 bits."""
    try:
        listed = np.asarray(counts)
    except (ValueError, OverflowError):
        listed = np.asarray("")
    if listed.size == 0 and listed.ndim == 1:
        return np.zeros(0, np.int64)
    if listed.ndim != 1 or listed.dtype.kind not in "iu" or listed.dtype == np.uint64:
        raise _damaged("the runs of a run-length encoding are not whole numbers")
    return listed.astype(np.int64)


def _size(rle: Mapping[str, Any], max_pixels: int) -> tuple[int, int]:
    """The height and width; both must be positive and the area within the limit."""
    size = rle.get("size") if isinstance(rle, Mapping) else None
    if not isinstance(size, list | tuple | np.ndarray) or len(size) != 2:
        raise _damaged("a run-length encoding has no `size` of [height, width]")
    if not all(isinstance(n, int | np.integer) and n > 0 for n in size):
        raise _damaged(f"a run-length encoding has the size {str(list(size))[:80]}")
    height, width = int(size[0]), int(size[1])
    if height * width > max_pixels:
        raise ImageError(
            "a run-length encoding is too large",
            got=f"{height} x {width}",
            expected=f"at most {max_pixels:,} pixels",
        )
    return height, width


def _damaged(what: str) -> ImageError:
    return ImageError(what, expected="COCO's `size` and `counts`, compressed or not")


def _check_mask(mask: Mask) -> tuple[int, int]:
    if mask.ndim != 2 or mask.dtype != np.bool_ or not mask.size:
        raise ImageError(
            "only a mask can be run-length encoded",
            got=f"{mask.dtype}{list(mask.shape)}",
            expected="bool[H, W]",
            hint="threshold it first: `mask > 0`",
        )
    return mask.shape[0], mask.shape[1]

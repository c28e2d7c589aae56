"""Prompts: from what people write to what the decoder takes.

A prompt asks for one object: clicks with labels, at most one box, at most one mask. Several
prompts may be given at once, each with its own number of clicks; shorter lists are filled up with
points that count as nothing.

Everything here is checked once, where people can read about it: one `PromptError` each.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from samgraph.errors import PromptError
from samgraph.models.family import ABSENT
from samgraph.predict.image.mask_prompts import read_masks

Floats: TypeAlias = NDArray[np.float32]
Integers: TypeAlias = NDArray[np.int64]
Mask: TypeAlias = NDArray[np.bool_]

BOX_LABELS = (2, 3)
CLICK_LABELS = (0, 1)
# Attention among the points of a prompt takes memory by their square.
MOST_POINTS = 1000


@dataclass(frozen=True, slots=True, eq=False)
class Prompt:
    """One object asked for, in pixels of the image: points [K, 2] and labels [K].

    A box is two points, labels 2 and 3, in front. `logits` [L, L] are an earlier answer, to be
    improved; `mask` [H, W] is one that somebody drew, which a video takes as the answer.
    """

    points: Floats
    labels: Integers
    logits: Floats | None = None
    mask: Mask | None = None

    @property
    def has_box(self) -> bool:
        """Whether the first two points are a box."""
        return len(self.labels) >= 2 and tuple(self.labels[:2].tolist()) == BOX_LABELS

    def joined(self, more: "Prompt") -> "Prompt":
        """This prompt and a later one: points add up, a new box or mask replaces."""
        if more.mask is not None or self.mask is not None:
            return more
        corners = 2 if self.has_box else 0
        keep: tuple[Floats, ...]
        kinds: tuple[Integers, ...]
        if more.has_box:
            keep = (more.points[:2], self.points[corners:], more.points[2:])
            kinds = (more.labels[:2], self.labels[corners:], more.labels[2:])
        else:
            keep = (self.points, more.points)
            kinds = (self.labels, more.labels)
        return Prompt(np.concatenate(keep), np.concatenate(kinds))


@dataclass(frozen=True, slots=True)
class PromptBatch:
    """Prompts side by side, in pixels of the model's input.

    points [N, P, 2]; labels [N, P], -2 where there is nothing; mask [N, 1, L, L] and, where any
    counts, has_mask [N].
    """

    points: Floats
    labels: Integers
    mask: Floats | None
    has_mask: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.points)

    def part(self, start: int, stop: int) -> "PromptBatch":
        """Some of the prompts."""
        mask = None if self.mask is None else self.mask[start:stop]
        some = slice(start, stop)
        return PromptBatch(self.points[some], self.labels[some], mask, self.has_mask[some])


def read_prompts(
    size_hw: tuple[int, int],
    mask_size: int,
    *,
    points: Any = None,
    labels: Any = None,
    box: Any = None,
    boxes: Any = None,
    mask: Any = None,
) -> list[Prompt]:
    """What `EncodedImage.predict` was given, as prompts.

    Raises:
        PromptError: Something is missing, of the wrong shape, not a number, or not in the image.
    """
    if box is not None and boxes is not None:
        raise PromptError("both `box` and `boxes` are given", hint="put all boxes in `boxes`")
    if labels is not None and points is None:
        raise PromptError("labels are given without points")
    corners = _read_boxes(boxes if box is None else [box], box is None, size_hw)
    clicks = _read_points(points, size_hw)
    signs = _read_labels(labels, clicks)
    masks = read_masks(mask, size_hw, mask_size)
    count = _count({"points": clicks, "boxes": corners, "masks": masks})
    prompts = []
    for i in range(count):
        xy: list[Floats] = [corners[i]] if corners else []
        kinds: list[Integers] = [np.array(BOX_LABELS)] if corners else []
        if clicks:
            xy, kinds = [*xy, clicks[i]], [*kinds, signs[i]]
        prompts.append(_prompt(xy, kinds, masks[i] if masks else None))
    return prompts


def assemble(
    prompts: Sequence[Prompt], size_hw: tuple[int, int], image_size: int, mask_size: int
) -> PromptBatch:
    """Prompts as the arrays of the decoder, points scaled to its input."""
    longest = max(1, *(len(prompt.labels) for prompt in prompts))
    points = np.zeros((len(prompts), longest, 2), np.float32)
    labels = np.full((len(prompts), longest), ABSENT, np.int64)
    has_mask = np.array([prompt.logits is not None for prompt in prompts])
    mask = None
    if has_mask.any():
        mask = np.zeros((len(prompts), 1, mask_size, mask_size), np.float32)
    for i, prompt in enumerate(prompts):
        points[i, : len(prompt.labels)] = scale_points(prompt.points, size_hw, image_size)
        labels[i, : len(prompt.labels)] = prompt.labels
        if mask is not None and prompt.logits is not None:
            mask[i, 0] = prompt.logits
    return PromptBatch(points, labels, mask, has_mask)


def scale_points(points: Floats, size_hw: tuple[int, int], image_size: int) -> Floats:
    """Pixels (x, y) of the image to pixels of the model's input, in the reference's rounding."""
    size_wh = np.array([size_hw[1], size_hw[0]], np.float32)
    scaled: Floats = (points / size_wh * np.float32(image_size)).astype(np.float32)
    return scaled


def join(batches: Sequence[PromptBatch]) -> PromptBatch:
    """Several batches as one."""
    longest = max(batch.labels.shape[1] for batch in batches)
    missing = [longest - batch.labels.shape[1] for batch in batches]
    pairs = list(zip(batches, missing, strict=True))
    points = [np.pad(batch.points, ((0, 0), (0, n), (0, 0))) for batch, n in pairs]
    labels = [np.pad(b.labels, ((0, 0), (0, n)), constant_values=ABSENT) for b, n in pairs]
    masks = [batch.mask for batch in batches if batch.mask is not None]
    mask = None
    has_mask = np.concatenate([batch.has_mask for batch in batches])
    if masks:
        mask = np.zeros((len(has_mask), *masks[0].shape[1:]), np.float32)
        mask[has_mask] = np.concatenate([b.mask[b.has_mask] for b in batches if b.mask is not None])
    return PromptBatch(np.concatenate(points), np.concatenate(labels), mask, has_mask)


def _prompt(xy: list[Floats], kinds: list[Integers], mask: Floats | None) -> Prompt:
    if not any(len(part) for part in xy) and mask is None:
        raise PromptError("there is no prompt", expected="points, a box, boxes or a mask")
    points = np.concatenate([np.zeros((0, 2), np.float32), *xy])
    labels = np.concatenate([np.zeros(0, np.int64), *kinds]).astype(np.int64)
    if len(labels) > MOST_POINTS:
        raise PromptError(f"a prompt has {len(labels):,} points", expected=f"at most {MOST_POINTS}")
    return Prompt(points, labels, mask)


def _count(given: dict[str, list[Any]]) -> int:
    """How many prompts there are; whatever is given must be given for each."""
    counts = {name: len(items) for name, items in given.items() if items}
    if not counts:
        raise PromptError("there is no prompt", expected="points, a box, boxes or a mask")
    if len(set(counts.values())) > 1:
        shown = ", ".join(f"{name} for {n}" for name, n in counts.items())
        raise PromptError(
            "it is not clear how many objects are asked for",
            got=shown,
            expected="as many lists of points as boxes and masks",
        )
    return next(iter(counts.values()))


def _read_points(points: Any, size_hw: tuple[int, int]) -> list[Floats]:
    """The clicks of each prompt, [K, 2]."""
    if points is None:
        return []
    if hasattr(points, "__array__"):  # a tensor, too
        points = np.asarray(points)
    if is_nested(points):
        lists = [_numbers([] if some is None else some, "points") for some in points]
    else:
        lists = [_numbers(points, "points")]
    clicks = []
    for array in lists:
        if array.shape == (2,):
            array = array[None]
        if array.size == 0:
            array = array.reshape(0, 2)
        if array.ndim != 2 or array.shape[1] != 2:
            raise PromptError(
                "points are pairs of x and y", got=f"shape {list(array.shape)}", expected="[K, 2]"
            )
        _check_inside(array, size_hw, "point")
        clicks.append(array)
    return clicks if any(map(len, clicks)) else []


def is_nested(points: Any) -> bool:
    """Whether these are lists of points, one for each prompt, and not points."""
    if isinstance(points, Sequence):
        return any(_depth(item) > 1 for item in points)
    return _depth(points) == 3


def _depth(item: Any) -> int:
    """How deep lists are nested; nothing at all counts as a list of points."""
    if isinstance(item, np.ndarray):
        return item.ndim
    if item is None:
        return 2
    if not isinstance(item, Sequence) or isinstance(item, str | bytes):
        return 0
    return 1 + _depth(item[0]) if len(item) else 2


def _read_labels(labels: Any, clicks: list[Floats]) -> list[Integers]:
    """The label of every click; without labels, all clicks are inside."""
    if labels is None:
        return [np.ones(len(some), np.int64) for some in clicks]
    if len(clicks) > 1:
        if not isinstance(labels, Sequence | np.ndarray) or len(labels) != len(clicks):
            raise _wrong_labels(labels, clicks)
        lists = [_numbers([] if some is None else some, "labels") for some in labels]
    else:
        lists = [_numbers(labels, "labels").reshape(-1)]
    found = []
    for some, array in zip(clicks, lists, strict=False):
        if array.shape != (len(some),):
            raise _wrong_labels(labels, clicks)
        if not np.isin(array, CLICK_LABELS).all():
            strange = next(value for value in array if value not in CLICK_LABELS)
            raise PromptError(
                f"there is no label `{strange:g}`", expected="1 for inside, 0 for outside"
            )
        found.append(array.astype(np.int64))
    if len(found) != len(clicks) or (not clicks and lists[0].size):
        raise _wrong_labels(labels, clicks)
    return found


def _wrong_labels(labels: Any, clicks: list[Floats]) -> PromptError:
    count = sum(map(len, clicks))
    try:
        given = str(sum(np.size(some) for some in labels))
    except (TypeError, ValueError):
        given = f"other than {count}"
    return PromptError(
        "every point needs a label", got=f"{count} points, {given} labels", expected="as many"
    )


def _read_boxes(boxes: Any, several: bool, size_hw: tuple[int, int]) -> list[Floats]:
    """The two corners of each box, [2, 2]."""
    if boxes is None:
        return []
    array = _numbers(boxes, "boxes" if several else "box")
    if several and array.shape == (4,):
        array = array[None]
    if not several and array.ndim == 3 and array.shape[:2] == (1, 1):
        array = array[0]
    if array.ndim != 2 or array.shape[1] != 4 or not len(array):
        raise PromptError(
            "a box is x0, y0, x1, y1",
            got=f"shape {list(array.shape if several else array.shape[1:])}",
            expected="[N, 4]" if several else "four numbers",
        )
    for x0, y0, x1, y1 in array:
        shown = f"{x0:g}, {y0:g}, {x1:g}, {y1:g}"
        if x1 < x0 or y1 < y0:
            raise PromptError(
                f"the box `{shown}` is upside down",
                hint=f"left, top, right, bottom: {min(x0, x1):g},{min(y0, y1):g},"
                f"{max(x0, x1):g},{max(y0, y1):g}",
            )
        if x1 == x0 or y1 == y0:
            raise PromptError(f"the box `{shown}` has no area")
    _check_inside(array.reshape(-1, 2), size_hw, "box corner")
    return list(array.reshape(-1, 2, 2))


def _check_inside(points: Floats, size_hw: tuple[int, int], what: str) -> None:
    """Points may lie on the far edges, which belong to the last pixels."""
    height, width = size_hw
    outside = (points < 0).any(1) | (points > (width, height)).any(1)
    if outside.any():
        x, y = points[outside.argmax()]
        raise PromptError(
            f"the {what} `{x:g}, {y:g}` is outside the image",
            expected=f"x from 0 to {width}, y from 0 to {height}",
        )


def _numbers(values: Any, what: str) -> Floats:
    """Finite numbers as float32."""
    try:
        array = np.asarray(values)
        if array.dtype.kind == "c":
            raise TypeError("complex")
        if array.dtype.kind not in "biuf":
            array = array.astype(np.float64)
        with np.errstate(over="ignore"):
            wide = array.astype(np.float32)
    except (TypeError, ValueError, OverflowError, RuntimeError) as error:
        raise PromptError(f"`{what}` are not numbers", got=_shown(values)) from error
    if not np.isfinite(wide).all():
        raise PromptError(f"`{what}` hold a value that is not a finite number", got=_shown(values))
    return wide


def _shown(values: Any) -> str:
    text = " ".join(repr(values).split())
    return text if len(text) <= 80 else f"{text[:77]}..."

"""Prompts on frames: what a user points at, checked and converted to the input of the model.

Coordinates are pixels of the frame, (x, y) from its top left corner. The model sees the frame
stretched to a square of S pixels.
"""

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from samgraph.errors import PromptError
from samgraph.predict.prompts import Floats, Mask, Prompt, read_prompts, scale_points
from samgraph.predict.video.step import Clicks

ObjectId: TypeAlias = int | str


def video_prompt(
    size_hw: tuple[int, int],
    *,
    points: ArrayLike | None = None,
    labels: ArrayLike | None = None,
    box: ArrayLike | None = None,
    mask: ArrayLike | None = None,
) -> Prompt:
    """A prompt for one object on a frame, as given by a user.

    Raises:
        PromptError: Nothing was given, or something that makes no sense on such a frame.
    """
    if mask is not None:
        if points is not None or box is not None or labels is not None:
            raise PromptError("a mask is given alone", got="a mask with points or a box")
        nothing = np.zeros((0, 2), np.float32), np.zeros(0, np.int64)
        return Prompt(*nothing, mask=_checked_mask(mask, size_hw))
    if points is None and box is None and labels is None:
        raise PromptError(
            "a prompt needs points, a box or a mask",
            hint="points=[(x, y)], box=(left, top, right, bottom), or mask=array",
        )
    found = read_prompts(size_hw, 0, points=points, labels=labels, box=box)
    if len(found) != 1:
        raise PromptError("a prompt is for one object", got=f"points for {len(found)}")
    return found[0]


def clicks_of(prompt: Prompt, size_hw: tuple[int, int], image_size: int) -> Clicks:
    """The box and the points of a prompt, on the model's input."""
    return Clicks(scale_points(prompt.points, size_hw, image_size), prompt.labels)


def checked_object(name: object) -> ObjectId:
    """An object's id: any whole number or text."""
    if isinstance(name, np.integer):
        return int(name)
    if isinstance(name, bool) or not isinstance(name, int | str) or name == "":
        raise PromptError(
            "an object is named by a number or a text", got=f"a {type(name).__name__}: {name!r}"
        )
    return name


def checked_frame(frame: object, length: int | None, what: str = "frame") -> int:
    """The index of a frame, in a video of so many; None where that is not known."""
    if isinstance(frame, bool) or not isinstance(frame, int | np.integer):
        raise PromptError(f"a {what} is named by its number", got=f"a {type(frame).__name__}")
    if frame < 0 or (length is not None and frame >= length):
        raise PromptError(
            f"there is no {what} {frame}",
            expected="0 or more" if length is None else f"0 to {length - 1}",
        )
    return int(frame)


def resize_mask(mask: Mask, image_size: int) -> Mask:
    """A mask [H, W] on the model's input, [S, S]: antialiased, then cut at one half."""
    if mask.shape == (image_size, image_size):
        return mask
    columns = _antialias(mask.shape[1], image_size)
    rows = _antialias(mask.shape[0], image_size)
    half = mask.astype(np.float32) @ columns.T
    return np.asarray(rows @ half >= np.float32(0.5))


def _antialias(length: int, size: int) -> Floats:
    """Weights [size, length] of an antialiased bilinear resize, in float32 as torch has them."""
    scale = np.float32(length) / np.float32(size)
    support = max(scale, np.float32(1))
    centre = scale * (np.arange(size, dtype=np.float32) + np.float32(0.5))
    offset = np.arange(length, dtype=np.float32)[None] - centre[:, None]
    weights = np.maximum(np.float32(1) - np.abs(offset + np.float32(0.5)) / support, np.float32(0))
    return np.asarray(weights / weights.sum(axis=1, keepdims=True), np.float32)


def _checked_mask(mask: ArrayLike, size_hw: tuple[int, int]) -> Mask:
    try:
        found: NDArray[Any] = np.asarray(mask)
    except (TypeError, ValueError) as error:
        raise PromptError("a mask is an array", got=str(error)[:80]) from error
    if found.ndim == 3 and 1 in (found.shape[0], found.shape[2]):
        found = found.reshape([n for n in found.shape if n != 1] or [1])
    if found.ndim != 2 or found.dtype.kind not in "biuf":
        raise PromptError(
            "a mask is one truth value a pixel",
            got=f"{found.dtype}{list(found.shape)}",
            expected="bool[H, W]",
        )
    if found.shape != size_hw:
        raise PromptError(
            "a mask has another size than the frame",
            got=f"{found.shape[1]} x {found.shape[0]}",
            expected=f"{size_hw[1]} x {size_hw[0]}",
        )
    return found.astype(np.bool_) if found.dtype.kind != "f" else np.asarray(found > 0)

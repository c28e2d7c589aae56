"""Mask prompts: the logits of an earlier result, or a binary mask."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from samgraph.errors import PromptError
from samgraph.media.image.reading import read_label_image

Floats = NDArray[np.float32]

# The logits of a binary mask are plus or minus ten, as in the reference's video predictor.
BINARY_LOGIT = 10.0


def read_masks(mask: Any, size_hw: tuple[int, int], mask_size: int) -> list[Floats]:
    """The low-resolution logits [L, L] of each prompt's mask."""
    if mask is None:
        return []
    if hasattr(mask, "best") and hasattr(mask, "logits"):
        return list(mask.best.logits)
    if isinstance(mask, Sequence) and len(mask) and not isinstance(mask, str | bytes):
        return [found for item in mask for found in _read(item, size_hw, mask_size)]
    return _read(mask, size_hw, mask_size)


def _read(mask: Any, size_hw: tuple[int, int], mask_size: int) -> list[Floats]:
    side = (mask_size, mask_size)
    try:
        array = np.asarray(mask)
    except (TypeError, ValueError, RuntimeError) as error:
        raise PromptError("the mask is not an array", got=type(mask).__name__) from error
    if array.dtype.kind not in "biuf" or array.ndim < 2 or array.ndim > 4:
        raise _wrong_mask(array, size_hw, mask_size)
    if array.ndim == 4 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim == 2:
        array = array[None]
    is_binary = array.dtype.kind in "biu"
    if array.ndim != 3 or array.shape[1:] != (size_hw if is_binary else side) or not len(array):
        raise _wrong_mask(array, size_hw, mask_size)
    if is_binary:
        return [binary_mask_logits(item > 0, mask_size) for item in array]
    with np.errstate(over="ignore"):
        wide = array.astype(np.float32)
    if not np.isfinite(wide).all():
        raise PromptError("the mask holds a value that is not a finite number")
    return list(wide)


def binary_mask_logits(mask: NDArray[np.bool_], mask_size: int) -> Floats:
    """A mask [H, W] as low-resolution logits [L, L], by the fraction of each cell that is set."""
    grey = Image.fromarray(mask.astype(np.uint8) * np.uint8(255))
    small = grey.resize((mask_size, mask_size), Image.Resampling.BILINEAR)
    fraction = np.asarray(small, np.float32) / np.float32(255)
    return (fraction * np.float32(2) - np.float32(1)) * np.float32(BINARY_LOGIT)


def read_mask_file(source: Any, size_hw: tuple[int, int]) -> NDArray[np.bool_]:
    """A binary mask from an image file: every value but 0 is set.

    Raises:
        ImageError: The file is not an image, or has colours instead of one number per pixel.
        PromptError: It has another size than the image.
    """
    labels = read_label_image(source)
    if labels.shape != size_hw:
        raise _wrong_mask(labels, size_hw, 0)
    return labels > 0


def _wrong_mask(array: NDArray[Any], size_hw: tuple[int, int], mask_size: int) -> PromptError:
    height, width = size_hw
    low = f"logits [{mask_size}, {mask_size}], such as `result.best.logits`, or "
    return PromptError(
        "the mask has the wrong size",
        got=f"{array.dtype}{list(array.shape)}",
        expected=f"{low if mask_size else ''}a mask of the image's size [{height}, {width}]",
    )

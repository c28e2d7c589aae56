"""Prompts in the reference's layout, converted to the decoder's inputs.

As in the reference, coordinates may be outside the image, labels may be -1, 2 and 3, and there may
be no prompt at all.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from samgraph.compat.host import to_host
from samgraph.errors import PromptError
from samgraph.media.mask.components import connected_components
from samgraph.models.family import ABSENT
from samgraph.predict.prompts import BOX_LABELS, PromptBatch, scale_points

Floats = NDArray[np.float32]
Integers = NDArray[np.int64]

LABELS = (-1, 0, 1, 2, 3)
# How far the logits of a filled hole or a removed island are from the threshold.
FILLED = 10.0


def prompt_batch(
    points: Any,
    labels: Any,
    box: Any,
    mask: Any,
    size_hw: tuple[int, int] | None,
    sizes: tuple[int, int],
) -> PromptBatch:
    """Prompts as `SAM2ImagePredictor.predict` takes them; `sizes` are the model's input and mask.

    Coordinates are pixels of an image of `size_hw`, or without it of the model's input.

    Raises:
        PromptError: Something is not a number or has a wrong shape.
    """
    image_size, mask_size = sizes
    parts: list[tuple[Floats, Integers]] = []
    if box is not None:
        corners: Floats = _numbers(box, "box").reshape(-1, 2, 2)
        parts.append((corners, np.tile(np.array(BOX_LABELS), (len(corners), 1))))
    if points is not None:
        parts.append(_points(points, labels))
    masks = None if mask is None else _masks(mask, mask_size)
    if len({len(xy) for xy, _ in parts}) > 1:
        shown = " and ".join(str(len(xy)) for xy, _ in parts)
        raise PromptError("there must be as many boxes as lists of points", got=shown)
    if parts:
        xy = np.concatenate([part for part, _ in parts], axis=1)
        kinds = np.concatenate([part for _, part in parts], axis=1)
    else:
        count = 1 if masks is None else len(masks)
        xy = np.zeros((count, 1, 2), np.float32)
        kinds = np.full((count, 1), ABSENT)
    scaled = xy if size_hw is None else scale_points(xy, size_hw, image_size)
    if masks is not None and len(masks) == 1:  # one mask for every prompt
        masks = np.repeat(masks, len(xy), axis=0)
    if masks is not None and len(masks) != len(xy):
        raise PromptError("there must be a mask for each prompt", got=f"{len(masks)}, {len(xy)}")
    return PromptBatch(scaled, kinds, masks, np.full(len(xy), masks is not None))


def cleaned_logits(logits: Floats, threshold: float, hole: float, speck: float) -> Floats:
    """Low-resolution logits [..., L, L] without small holes and islands; areas in their pixels."""
    if hole <= 0 and speck <= 0:
        return logits
    out = logits.copy()
    for source, target in zip(
        logits.reshape(-1, *logits.shape[-2:]), out.reshape(-1, *out.shape[-2:]), strict=True
    ):
        if hole > 0:
            target[_small_components(source <= threshold, hole)] = threshold + FILLED
        if speck > 0:
            target[_small_components(source > threshold, speck)] = threshold - FILLED
    return out


def _small_components(mask: NDArray[np.bool_], largest: float) -> NDArray[np.bool_]:
    components, areas = connected_components(mask, 8)
    small = areas <= largest
    small[0] = False
    return np.asarray(small[components])


def _points(points: Any, labels: Any) -> tuple[Floats, Integers]:
    """Points [B, N, 2] and labels [B, N]."""
    xy = _numbers(points, "point_coords")
    if labels is None:
        raise PromptError("`point_labels` must be given with `point_coords`")
    kinds = _numbers(labels, "point_labels")
    if xy.ndim == 2:
        xy, kinds = xy[None], kinds[None]
    if xy.ndim != 3 or xy.shape[2] != 2 or kinds.shape != xy.shape[:2]:
        raise PromptError(
            "points and labels do not fit",
            got=f"{list(xy.shape)} and {list(kinds.shape)}",
            expected="[N, 2] and [N], or [B, N, 2] and [B, N]",
        )
    if not np.isin(kinds, LABELS).all():
        raise PromptError("there is no such label", got=kinds.tolist(), expected=f"{LABELS}")
    return xy, kinds.astype(np.int64)


def _masks(mask: Any, side: int) -> Floats:
    """Masks [B, 1, L, L]."""
    logits = _numbers(mask, "mask_input")
    if logits.ndim == 3:
        logits = logits[None]
    if logits.ndim != 4 or logits.shape[1:] != (1, side, side):
        raise PromptError(
            "`mask_input` has the wrong size",
            got=f"{list(logits.shape)}",
            expected=f"[1, {side}, {side}] or [B, 1, {side}, {side}]",
        )
    return logits


def _numbers(values: Any, what: str) -> Floats:
    """Numbers as float32, from arrays, lists or tensors."""
    try:
        with np.errstate(over="ignore"):
            array = np.asarray(to_host(values)).astype(np.float32)
    except (TypeError, ValueError, RuntimeError) as error:
        raise PromptError(f"`{what}` are not numbers", got=type(values).__name__) from error
    if not np.isfinite(array).all():
        raise PromptError(f"`{what}` hold a value that is not a finite number")
    return array

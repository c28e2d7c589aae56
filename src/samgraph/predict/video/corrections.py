"""Clicks on a tracked frame, for models that do not weigh them against their memory.

SAM 2 conditions such a frame on memory, and its last mask is a prompt. A model that never saw
clicks beside a memory ignores them there. Where the config says `obeys_clicks`, the frame is read
as a still image instead, with and without the last mask as a prompt, and memory only helps to
choose: of the eight masks, those that agree with most clicks, and of these the one with the highest
predicted IoU plus what it shares with the mask that memory gave, which counts less with every
click. The pointer is that of a mask given by a user.

Shapes: N masks, L mask size, P points.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from samgraph.engines import Buffer
from samgraph.media.image.preprocess import upscale_masks
from samgraph.models.family import DecoderPrompts, Features, SegmentationModel
from samgraph.predict.prompts import Floats
from samgraph.predict.video.step import CLAMP, Clicks, Outcome, click, paint

# How much the IoU with the mask of memory counts beside the predicted IoU, at the first click.
MEMORY_WEIGHT: Final = 2.0
_CORNER: Final = 2  # the first label of a box


def correct(
    model: SegmentationModel,
    features: Features,
    clicks: Clicks,
    previous: Buffer,
    remembered: Buffer,
) -> Outcome:
    """One object from clicks on a frame whose features are unconditioned.

    `previous` [L, L] are the logits the clicks are to improve, `remembered` [L, L] those that
    memory gave. A box says where the object ends, so it is asked for as on a still image.
    """
    if (clicks.labels >= _CORNER).any():
        return click(model, features, clicks)
    buffers = model.buffers
    prompts = DecoderPrompts(
        np.repeat(clicks.xy[None], 2, axis=0),
        np.repeat(clicks.labels[None], 2, axis=0),
        np.zeros(2, np.bool_),
        buffers.repeat(buffers.clip(previous, CLAMP)[None, None], 2),
        np.array([True, False]),
    )
    decoded = model.decode(features, prompts)
    masks = np.asarray(buffers.download(decoded.masks))
    ious = np.asarray(buffers.download(decoded.ious))
    size = model.preprocessing.size
    index = best_mask(
        masks.reshape(-1, *masks.shape[2:]),
        ious.reshape(-1),
        Clicks(clicks.xy / np.float32(size), clicks.labels),
        np.asarray(buffers.download(remembered)) > 0,
    )
    row, column = divmod(index, masks.shape[1])
    logits = decoded.masks[row, column]
    painted = paint(model, features, upscale_masks(masks[row, column], (size, size)))
    return Outcome(logits, painted.score, decoded.ious[row, column : column + 1], painted.pointer)


def best_mask(logits: Floats, ious: Floats, clicks: Clicks, remembered: NDArray[np.bool_]) -> int:
    """The index of the mask to take of logits [N, L, L]; the points of clicks are from 0 to 1."""
    inside = logits > 0
    shared = (inside & remembered).sum((1, 2)) / np.maximum((inside | remembered).sum((1, 2)), 1)
    worth = ious + MEMORY_WEIGHT * shared / max(len(clicks.labels), 1)
    obeyed = (values_at(logits, clicks.xy) > 0) == (clicks.labels == 1)
    return int(np.lexsort((worth, obeyed.sum(1)))[-1])


def values_at(logits: Floats, xy: Floats) -> Floats:
    """Logits [N, L, L] at points [P, 2] from 0 to 1, between pixels bilinearly: [N, P]."""
    side = logits.shape[-1]
    place = np.clip(xy * side - 0.5, 0, side - 1)
    low = np.minimum(place.astype(np.int64), side - 2)
    (x, y), (right, down) = low.T, (place - low).T
    upper = logits[:, y, x] * (1 - right) + logits[:, y, x + 1] * right
    lower = logits[:, y + 1, x] * (1 - right) + logits[:, y + 1, x + 1] * right
    return np.asarray(upper * (1 - down) + lower * down, np.float32)

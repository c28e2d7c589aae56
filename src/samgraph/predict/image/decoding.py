"""Running the mask decoder: many prompts on one image, or one image per prompt.

Points on one image go through `decode_prepared`, whose image-side work is done beforehand. Prompts
with a mask, and prompts on several images, go through `decode`. Both run a few prompts per batch:
memory does not grow with their number, and results do not depend on the batches.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from samgraph.models.sam2.mask_decoder import STABILITY_WANTED
from samgraph.models.sam2.model import Sam2Model
from samgraph.predict.features import FEATURES, Embedding, repeated
from samgraph.predict.prompts import PromptBatch

Floats = NDArray[np.float32]
Arrays = Mapping[str, NDArray[Any]]

# Prompts per batch. Of 1, 2, 4, 8, 16 and 64, four took the least time per prompt (two cores, 1024
# pixels, 2025-11): what a layer writes is still in the cache for the next.
BATCH = 4


@dataclass(frozen=True, slots=True)
class MaskPredictions:
    """The masks of N prompts: M is 3 with multimask output, else 1.

    logits [N, M, L, L], not clamped; scores (predicted IoU) and stability [N, M].
    """

    logits: Floats
    scores: Floats
    stability: Floats

    def part(self, start: int, stop: int) -> "MaskPredictions":
        """The masks of some of the prompts."""
        some = slice(start, stop)
        return MaskPredictions(self.logits[some], self.scores[some], self.stability[some])


def prepare(core: Sam2Model, embedding: Embedding) -> Arrays:
    """The decoder's image-side values, which do not depend on the prompt."""
    return core.run("prepare_image", **embedding.features)


def decode_prepared(
    core: Sam2Model,
    prepared: Arrays,
    prompts: PromptBatch,
    *,
    multimask: bool,
    falls_back: bool = True,
) -> MaskPredictions:
    """The masks of points on one image."""
    parts = []
    for batch in split(prompts):
        out = core.run("decode_prepared", **prepared, points=batch.points, labels=batch.labels)
        parts.append(choose(out, multimask=multimask, falls_back=falls_back))
    return concatenate(parts)


def decode(
    core: Sam2Model,
    images: Sequence[Embedding],
    prompts: PromptBatch,
    *,
    multimask: bool,
    falls_back: bool = True,
) -> MaskPredictions:
    """The masks of any prompts; `images` has one embedding per prompt, or one for all."""
    parts, start = [], 0
    for batch in split(prompts):
        some = images if len(images) == 1 else images[start : start + len(batch)]
        start += len(batch)
        out = core.run("decode", **_inputs(core, some, batch, multimask=multimask))
        parts.append(choose(out, multimask=multimask, falls_back=falls_back))
    return concatenate(parts)


def split(prompts: PromptBatch, size: int = BATCH) -> Iterator[PromptBatch]:
    """The prompts in batches."""
    for start in range(0, len(prompts), size):
        yield prompts.part(start, start + size)


def choose(out: Arrays, *, multimask: bool, falls_back: bool = True) -> MaskPredictions:
    """Masks 1 to 3 with multimask output, else mask 0.

    With `falls_back`, an unstable mask 0 is replaced by the best of the others (the reference's
    `dynamic_multimask_via_stability`).
    """
    masks, ious, stability = out["masks"], out["ious"], out["stability"]
    if multimask:
        return MaskPredictions(masks[:, 1:], ious[:, 1:], stability[:, 1:])
    is_stable = (stability[:, 0] >= np.float32(STABILITY_WANTED)) | (not falls_back)
    index = np.where(is_stable, 0, 1 + ious[:, 1:].argmax(1))
    row = np.arange(len(index))
    return MaskPredictions(*(array[row, index][:, None] for array in (masks, ious, stability)))


def concatenate(parts: Sequence[MaskPredictions]) -> MaskPredictions:
    """The masks of all prompts from those of batches."""
    if len(parts) == 1:
        return parts[0]
    return MaskPredictions(
        np.concatenate([part.logits for part in parts]),
        np.concatenate([part.scores for part in parts]),
        np.concatenate([part.stability for part in parts]),
    )


def _inputs(
    core: Sam2Model, images: Sequence[Embedding], prompts: PromptBatch, *, multimask: bool
) -> dict[str, NDArray[Any]]:
    """The inputs of the `decode` graph."""
    count, side = len(prompts), core.config.mask_size
    features = {
        name: _for_each([getattr(image, name) for image in images], count) for name in FEATURES
    }
    mask = prompts.mask
    return {
        **features,
        "points": prompts.points,
        "labels": prompts.labels,
        "mask": np.zeros((count, 1, side, side), np.float32) if mask is None else mask,
        "has_mask": prompts.has_mask,
        "no_memory": np.ones(count, np.bool_),
        "multimask": np.full(count, multimask),
    }


def _for_each(maps: Sequence[Floats], count: int) -> Floats:
    """A feature map per prompt, from one per prompt or one for all."""
    return np.concatenate(maps) if len(maps) > 1 else repeated(maps[0], count)

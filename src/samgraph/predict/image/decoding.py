"""Running the mask decoder: many prompts on one image, or one image per prompt.

Points on one image go through `decode_prepared`, whose image-side work is done beforehand. Prompts
with a mask, and prompts on several images, go through `decode`. Both run a few prompts per batch:
memory does not grow with their number, and results do not depend on the batches.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from samgraph.engines import Buffer
from samgraph.models.family import Decoded, DecoderPrompts, Features, SegmentationModel
from samgraph.predict.features import Embedding
from samgraph.predict.prompts import PromptBatch
from samgraph.untrusted.arguments import flag

Floats = NDArray[np.float32]
Prepared = Mapping[str, Buffer]

# A single mask is taken where at least so much of it stays when the threshold moves.
STABILITY_WANTED = 0.98

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


def prepare(model: SegmentationModel, embedding: Embedding) -> Prepared:
    """The decoder's image-side values, which do not depend on the prompt."""
    return model.prepare(embedding.features)


def decode_prepared(
    model: SegmentationModel,
    prepared: Prepared,
    prompts: PromptBatch,
    *,
    multimask: bool,
    falls_back: bool = True,
) -> MaskPredictions:
    """The masks of points on one image."""
    multimask, parts = flag("multimask", multimask), []
    for batch in split(prompts):
        found = model.decode_points(prepared, batch.points, batch.labels)
        parts.append(choose(model, found, multimask=multimask, falls_back=falls_back))
    return concatenate(parts)


def decode(
    model: SegmentationModel,
    images: Sequence[Embedding],
    prompts: PromptBatch,
    *,
    multimask: bool,
    falls_back: bool = True,
) -> MaskPredictions:
    """The masks of any prompts; `images` has one embedding per prompt, or one for all."""
    multimask = flag("multimask", multimask)
    parts, start = [], 0
    for batch in split(prompts):
        some = images if len(images) == 1 else images[start : start + len(batch)]
        start += len(batch)
        inputs = DecoderPrompts(
            batch.points,
            batch.labels,
            np.full(len(batch), multimask),
            None if batch.mask is None else model.buffers.upload(batch.mask),
            batch.has_mask,
        )
        found = model.decode(_joined(model, some), inputs)
        parts.append(choose(model, found, multimask=multimask, falls_back=falls_back))
    return concatenate(parts)


def split(prompts: PromptBatch, size: int = BATCH) -> Iterator[PromptBatch]:
    """The prompts in batches."""
    for start in range(0, len(prompts), size):
        yield prompts.part(start, start + size)


def choose(
    model: SegmentationModel, found: Decoded, *, multimask: bool, falls_back: bool = True
) -> MaskPredictions:
    """Masks 1 to 3 with multimask output, else mask 0; on the host.

    With `falls_back`, an unstable mask 0 is replaced by the best of the others (the reference's
    `dynamic_multimask_via_stability`).
    """
    download = model.buffers.download
    masks, ious, stability = map(download, (found.masks, found.ious, found.stability))
    if multimask:
        return MaskPredictions(masks[:, 1:], ious[:, 1:], stability[:, 1:])
    index = single_index(ious, stability, falls_back=falls_back)
    row = np.arange(len(index))
    return MaskPredictions(*(array[row, index][:, None] for array in (masks, ious, stability)))


def single_index(ious: Floats, stability: Floats, *, falls_back: bool) -> NDArray[np.int64]:
    """Which of four masks stands for a prompt, [N], given their scores [N, 4]."""
    is_stable = (stability[:, 0] >= np.float32(STABILITY_WANTED)) | (not falls_back)
    return np.where(is_stable, 0, 1 + ious[:, 1:].argmax(1))


def concatenate(parts: Sequence[MaskPredictions]) -> MaskPredictions:
    """The masks of all prompts from those of batches."""
    if len(parts) == 1:
        return parts[0]
    return MaskPredictions(
        np.concatenate([part.logits for part in parts]),
        np.concatenate([part.scores for part in parts]),
        np.concatenate([part.stability for part in parts]),
    )


def _joined(model: SegmentationModel, images: Sequence[Embedding]) -> Features:
    """The features of images, one for each prompt, or one for all."""
    first = images[0].features
    if len(images) == 1:
        return first
    concat = model.buffers.concat
    return Features({n: concat([i.features.maps[n] for i in images]) for n in first.maps})

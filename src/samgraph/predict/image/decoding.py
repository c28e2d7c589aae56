"""Running the decoder on prompts: one image and many prompts, or an image a prompt.

Points on one image go through `decode_prepared`, which knows the image already. Prompts with a
mask, and prompts on several images at once, go through `decode`. Either runs a few prompts at a
time, so that memory does not grow with their number; the answers do not depend on it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from samgraph.engines import Buffer
from samgraph.models.family import Decoded, DecoderPrompts, Features, SegmentationModel
from samgraph.predict.features import Embedding
from samgraph.predict.prompts import PromptBatch

Floats = NDArray[np.float32]
Prepared = Mapping[str, Buffer]

# A single mask is taken where at least so much of it stays when the threshold moves.
STABILITY_WANTED = 0.98

# Prompts that run together. Four were the quickest a prompt of 1, 2, 4, 8, 16 and 64 (two cores,
# 1024 pixels, 2025-11): what one layer writes is then still in the cache for the next.
AT_ONCE = 4


@dataclass(frozen=True, slots=True)
class Answers:
    """The masks that answer each of N prompts: M is 3 of an ambiguous prompt, or 1.

    logits [N, M, L, L], not clamped; scores and stability [N, M].
    """

    logits: Floats
    scores: Floats
    stability: Floats

    def part(self, start: int, stop: int) -> "Answers":
        """The answers to some of the prompts."""
        some = slice(start, stop)
        return Answers(self.logits[some], self.scores[some], self.stability[some])


def prepare(model: SegmentationModel, embedding: Embedding) -> Prepared:
    """What the decoder wants of an image, whatever the prompt."""
    return model.prepare(embedding.features)


def decode_prepared(
    model: SegmentationModel,
    prepared: Prepared,
    prompts: PromptBatch,
    *,
    multimask: bool,
    falls_back: bool = True,
) -> Answers:
    """Answers to points on one image."""
    parts = []
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
) -> Answers:
    """Answers to prompts of any kind: `images` has one for each prompt, or one for all."""
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


def split(prompts: PromptBatch, size: int = AT_ONCE) -> Iterator[PromptBatch]:
    """The prompts, a few at a time."""
    for start in range(0, len(prompts), size):
        yield prompts.part(start, start + size)


def choose(
    model: SegmentationModel, found: Decoded, *, multimask: bool, falls_back: bool = True
) -> Answers:
    """Masks 1 to 3, or the one: mask 0, on the host.

    Where mask 0 is unstable, the best of the others takes its place, if the model `falls_back`.
    """
    download = model.buffers.download
    masks, ious, stability = map(download, (found.masks, found.ious, found.stability))
    if multimask:
        return Answers(masks[:, 1:], ious[:, 1:], stability[:, 1:])
    steady = (stability[:, 0] >= np.float32(STABILITY_WANTED)) | (not falls_back)
    place = np.where(steady, 0, 1 + ious[:, 1:].argmax(1))
    row = np.arange(len(place))
    return Answers(*(array[row, place][:, None] for array in (masks, ious, stability)))


def concatenate(parts: Sequence[Answers]) -> Answers:
    """Answers to all prompts from those to some at a time."""
    if len(parts) == 1:
        return parts[0]
    return Answers(
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

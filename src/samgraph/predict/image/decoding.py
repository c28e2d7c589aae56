"""Running the decoder on prompts: one image and many prompts, or an image a prompt.

Points on one image go through `decode_prepared`, which knows the image already. Prompts with a
mask, and prompts on several images at once, go through `decode`. Either runs a few prompts at a
time, so that memory does not grow with their number; the answers do not depend on it.
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


def prepare(core: Sam2Model, embedding: Embedding) -> Arrays:
    """What the decoder wants of an image, whatever the prompt."""
    return core.run("prepare_image", **embedding.features)


def decode_prepared(
    core: Sam2Model,
    prepared: Arrays,
    prompts: PromptBatch,
    *,
    multimask: bool,
    falls_back: bool = True,
) -> Answers:
    """Answers to points on one image."""
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
) -> Answers:
    """Answers to prompts of any kind: `images` has one for each prompt, or one for all."""
    parts, start = [], 0
    for batch in split(prompts):
        some = images if len(images) == 1 else images[start : start + len(batch)]
        start += len(batch)
        out = core.run("decode", **_inputs(core, some, batch, multimask=multimask))
        parts.append(choose(out, multimask=multimask, falls_back=falls_back))
    return concatenate(parts)


def split(prompts: PromptBatch, size: int = AT_ONCE) -> Iterator[PromptBatch]:
    """The prompts, a few at a time."""
    for start in range(0, len(prompts), size):
        yield prompts.part(start, start + size)


def choose(out: Arrays, *, multimask: bool, falls_back: bool = True) -> Answers:
    """Masks 1 to 3, or the one: mask 0.

    Where mask 0 is unstable, the best of the others takes its place, if the model `falls_back`.
    """
    masks, ious, stability = out["masks"], out["ious"], out["stability"]
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
    """A map for each prompt, from one for each or one for all."""
    return np.concatenate(maps) if len(maps) > 1 else repeated(maps[0], count)

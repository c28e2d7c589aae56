"""A model whose every decision can be followed: it tells things apart by their colour.

Frames have a black background; a thing is a connected region that is not black. What is remembered
of an object on a frame is its mean colour and whether it was there, four numbers: no grid of
tokens. A frame finds the object's three most similar things; its object score falls with the share
of remembered frames on which the object was absent. So scenes can be drawn on which a memory policy
must help, or must not matter, at a millisecond per frame.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt

from samgraph.checkpoint import LoadReport
from samgraph.engines.buffers import HOST_BUFFERS, Buffers
from samgraph.errors import DeviceMemoryError
from samgraph.media.mask.components import connected_components
from samgraph.models.family import (
    Alternatives,
    BankRead,
    Decoded,
    DecodedObjects,
    DecoderPrompts,
    Features,
    MemoryLayout,
    Preprocessing,
    TrackedObjects,
)

Floats = npt.NDArray[np.float32]
Mask = npt.NDArray[np.bool_]
Frame = npt.NDArray[np.uint8]

SIDE = 64
ABSENT = -1024.0


@dataclass(frozen=True)
class ColourConfig:
    """What predictors read of a config."""

    name: str = "colour"
    image_size: int = SIDE
    mask_size: int = SIDE
    memory_frames: int = 7
    max_pointers: int = 16
    signed_pointer_time: bool = True
    everything_iou: float = 0.8
    everything_stability: float = 0.95
    obeys_clicks: bool = False

    def at_size(self, image_size: int) -> "ColourConfig":
        """The same for another size."""
        return replace(self, image_size=image_size, mask_size=image_size)

    def to_json(self) -> str:
        """Nothing is read back."""
        return "{}"


class ColourModel:
    """The model; `least_trust` is the share of memories with the object that it must have."""

    family = "colour"

    def __init__(self, least_trust: float = 0.3) -> None:
        self.config: Any = ColourConfig()
        self.weights: Mapping[str, Any] = {"colour": np.zeros(1, np.float32)}
        self.session: Any = SimpleNamespace(
            objects_at_once=4,
            attention_tokens=None,
            options=SimpleNamespace(
                precision="fp32", approximation=None, chosen_approximation=None
            ),
        )
        self.report = LoadReport()
        self.graphs: Mapping[str, Any] = {}
        self.buffers: Buffers = HOST_BUFFERS
        self.preprocessing = Preprocessing(SIDE, mean=(0.0,) * 3, std=(1.0,) * 3)
        self.memory_layout = MemoryLayout(1, 4, 2)
        self.least_trust = least_trust
        self.least_similar = 0.0  # below this, a thing is not the object at all

    def leave_device(self, full: DeviceMemoryError, used: Buffers) -> None:
        """It is on the host already."""
        raise full

    @property
    def feature_shapes(self) -> dict[str, tuple[int, ...]]:
        """The pixels themselves."""
        return {"pixels": (1, 3, SIDE, SIDE)}

    def compiling_for_prompts(self) -> AbstractContextManager[None]:
        """Nothing is compiled."""
        return nullcontext()

    def encode(self, image: Any) -> Features:
        """The pixels themselves."""
        return Features({"pixels": np.asarray(image, np.float32)})

    def prepare(self, features: Features) -> Mapping[str, Any]:
        """Nothing is computed beforehand."""
        return features.maps

    def decode_points(self, prepared: Mapping[str, Any], points: Any, labels: Any) -> Decoded:
        """The thing under the first point of each prompt, four times."""
        found = self.decode(Features(prepared), DecoderPrompts(points, labels, labels[:, 0] > 0))
        return Decoded(found.masks, found.ious, found.stability, found.object_score)

    def decode(self, features: Features, prompts: DecoderPrompts) -> DecodedObjects:
        """The thing under a point, or the one that fills most of a box."""
        pixels = features.maps["pixels"][0]
        found = [
            _prompted(pixels, xy, labels)
            for xy, labels in zip(prompts.points, prompts.labels, strict=True)
        ]
        masks = np.stack([_logits(mask) for mask in found])[:, None]
        is_there = np.array([[1.0 if mask.any() else 0.0] for mask in found], np.float32)
        scores = 8 * is_there - 4
        each = np.repeat(is_there, 4, axis=1) * np.float32(0.95)
        pointers = np.repeat(is_there, 2, axis=1)
        return DecodedObjects(
            np.repeat(masks, 4, axis=1), each, each, scores, masks, each[:, :1], pointers
        )

    def decode_tracked(self, features: Features, count: int) -> TrackedObjects:
        """The most similar thing."""
        offered = self.decode_alternatives(features, count)
        rows, best = np.arange(count), np.asarray(offered.ious).argmax(1)
        masks, ious, pointers = (
            np.asarray(values)[rows, best]
            for values in (offered.masks, offered.ious, offered.pointers)
        )
        return TrackedObjects(masks[:, None], offered.object_score, ious[:, None], pointers)

    def decode_alternatives(self, features: Features, count: int) -> Alternatives:
        """The three most similar things, in the order they stand in the picture."""
        masks = np.full((count, 3, SIDE, SIDE), ABSENT, np.float32)
        ious, scores = np.zeros((count, 3), np.float32), np.zeros((count, 1), np.float32)
        things = things_of(features.maps["pixels"][0])
        for row, (*colour, trust) in enumerate(np.asarray(features.maps["recalled"])):
            alike = [similarity(own, colour) for _, own in things]
            order = sorted(sorted(range(len(things)), key=lambda k: -alike[k])[:3])
            best = max(alike, default=0.0)
            scores[row] = 10 * (trust * best - self.least_trust)
            if best < self.least_similar:
                scores[row] = -4
            for place, k in enumerate(order):
                ious[row, place] = alike[k]
                if scores[row] > 0:
                    masks[row, place] = _logits(things[k][0])
        pointers = np.repeat(ious[:, :, None], 2, axis=2)
        return Alternatives(masks, ious, scores, pointers)

    def mask_prompt(self, mask: Any) -> tuple[Any, Any]:
        """The mask is the answer."""
        logits = np.asarray(mask * 20 - 10, np.float32)
        return logits, logits

    def encode_memory(
        self, features: Features, masks: Any, object_score: Any, *, is_prompted: bool
    ) -> Any:
        """The mean colour within each mask, and whether there is any."""
        pixels = features.maps["pixels"][0]
        memory = np.zeros((len(masks), 1, 4), np.float32)
        for row, mask in enumerate(np.asarray(masks)[:, 0] > 0):
            if mask.any():
                memory[row, 0] = *pixels[:, mask].mean(1), 1.0
        return memory

    def attend(self, features: Features, read: BankRead) -> Features:
        """The mean of the remembered colours, and the share of frames that have one."""
        pages = np.asarray(read.pages)[read.frames][:, :, 0].astype(np.float32)
        trust = pages[:, :, 3].mean(1)
        colours = pages[:, :, :3].sum(1) / np.maximum(pages[:, :, 3].sum(1), 1)[:, None]
        recalled = np.concatenate([colours, trust[:, None]], axis=1)
        return Features({**features.maps, "recalled": recalled}, is_conditioned=True)

    @property
    def absent_pointer(self) -> Any:
        """Zeros."""
        return np.zeros((1, 2), np.float32)

    def checkpoint(self) -> dict[str, Any]:
        """The weights."""
        return dict(self.weights)


def draw(*discs: tuple[float, float, float, tuple[int, int, int]]) -> Frame:
    """A frame with discs: centre x, y, radius, colour."""
    frame = np.zeros((SIDE, SIDE, 3), np.uint8)
    for x, y, radius, colour in discs:
        frame[disc(x, y, radius)] = colour
    return frame


def disc(x: float, y: float, radius: float) -> Mask:
    """The pixels of a disc."""
    rows, columns = np.mgrid[:SIDE, :SIDE]
    inside: Mask = np.square(columns - x) + np.square(rows - y) <= radius * radius
    return inside


def things_of(pixels: Floats) -> list[tuple[Mask, Floats]]:
    """Every thing of a frame [3, S, S], with its mean colour; two that touch are two colours."""
    found = []
    rounded = np.round(pixels * 10).astype(np.int64)
    codes = rounded[0] * 400 + rounded[1] * 20 + rounded[2]
    for code in np.unique(codes[codes > 0]):
        labels, areas = connected_components(codes == code)
        found += [labels == label for label in range(1, len(areas))]
    return [(mask, pixels[:, mask].mean(1)) for mask in found]


def similarity(one: Any, other: Any) -> float:
    """1 for equal colours, falling to 0."""
    return float(np.exp(-2 * np.abs(np.asarray(one) - np.asarray(other)).sum()))


def _prompted(pixels: Floats, xy: Floats, labels: Any) -> Mask:
    """The thing that a point is on, or that overlaps most with a box."""
    things = [mask for mask, _ in things_of(pixels)]
    nothing: Mask = np.zeros((SIDE, SIDE), np.bool_)
    if not things:
        return nothing
    corners = xy[np.isin(labels, (2, 3))]
    if len(corners) == 2:
        (left, top), (right, bottom) = np.round(corners).astype(int)
        return max(things, key=lambda mask: int(mask[top:bottom, left:right].sum()))
    column, row = (int(min(max(value, 0), SIDE - 1)) for value in xy[0])
    return next((mask for mask in things if mask[row, column]), nothing)


def _logits(mask: Mask) -> Floats:
    return np.where(mask, np.float32(8), np.float32(-8))

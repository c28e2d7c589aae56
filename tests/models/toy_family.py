"""A family that is not SAM 2: another trunk, another layout of memory, no high-resolution features.

It finds bright things: a mask is how bright a cell is, raised by clicks. It shows that a family can
be added without touching `predict/`.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from samgraph import ops
from samgraph.engines import Buffer
from samgraph.graph import Array, Builder, Graph, symbol
from samgraph.models.compiled import CompiledModel
from samgraph.models.family import (
    BankRead,
    Decoded,
    DecodedObjects,
    DecoderPrompts,
    Family,
    Features,
    MemoryLayout,
    Preprocessing,
    TrackedObjects,
)

CHANNELS = 4


@dataclass(frozen=True, slots=True)
class ToyConfig:
    """Every dimension of the toy."""

    name: str = "toy"
    image_size: int = 64
    memory_frames: int = 3
    max_pointers: int = 4
    signed_pointer_time: bool = False
    everything_iou: float = 0.8
    everything_stability: float = 0.95
    obeys_clicks: bool = False

    @property
    def mask_size(self) -> int:
        """Side of a low-resolution mask."""
        return self.image_size // 4

    def at_size(self, image_size: int) -> "ToyConfig":
        """The same for another input size."""
        return replace(self, image_size=image_size)

    def smallest(self) -> "ToyConfig":
        """The same for the smallest input."""
        return self.at_size(64)

    def to_json(self) -> str:
        """Text that `from_json` reads back."""
        return json.dumps(asdict(self))


def encode(config: ToyConfig) -> Graph:
    """Pixels in cells of 4 x 4, projected: image [B, 3, S, S] -> cells [B, L*L, C]."""
    builder = Builder("encode")
    S, L = config.image_size, config.mask_size
    image = builder.input("image", f"f32[B,3,{S},{S}]")
    weight = builder.param("trunk.weight", f"f32[{CHANNELS},3,4,4]")
    cells = ops.conv2d(image, weight, stride=(4, 4))
    B = symbol("B")
    return builder.finish(cells=cells.transpose(0, 2, 3, 1).reshape(B, L * L, CHANNELS))


def decode(config: ToyConfig) -> Graph:
    """Cells [N, L*L, C] -> a mask; clicks count by their sign."""
    builder = Builder("decode")
    N, L = symbol("N"), config.mask_size
    cells = builder.input("cells", f"f32[N,{L * L},{CHANNELS}]")
    labels = builder.input("labels", "i64[N,P]")
    head = builder.param("head.weight", f"f32[1,{CHANNELS}]")
    inside = ops.reduce(ops.where(labels == 1, 1.0, 0.0), (1,), how="sum")
    logits = ops.linear(cells, head).reshape(N, 1, L, L) + inside.reshape(N, 1, 1, 1) * 0.25
    score = ops.reduce(logits, (1, 2, 3), how="mean").reshape(N, 1) + 10.0
    pointer = ops.reduce(cells, (1,), how="mean")
    return builder.finish(mask=logits, score=score, pointer=pointer)


def remember(config: ToyConfig) -> Graph:
    """Rows of the mask are the memory: mask [N, 1, L, L] -> [N, L, L]."""
    builder = Builder("remember")
    N, L = symbol("N"), config.mask_size
    mask = builder.input("mask", f"f32[N,1,{L},{L}]")
    return builder.finish(memory=ops.sigmoid(mask).reshape(N, L, L))


def attend(config: ToyConfig, stored: str) -> Graph:
    """Cells, raised where remembered masks were: pages [P, L, L], frames [N, F]."""
    builder = Builder(f"attend_{stored}")
    N, L = symbol("N"), config.mask_size
    cells = builder.input("cells", f"f32[1,{L * L},{CHANNELS}]")
    pages = builder.input("pages", f"{stored}[P,{L},{L}]")
    frames = builder.input("frames", "i64[N,F]")
    recalled = ops.cast(ops.gather(pages, frames, 0), "f32")
    mean = ops.reduce(recalled, (1,), how="mean").reshape(N, L * L, 1)
    return builder.finish(cells=cells + mean)


TRACES: dict[str, Callable[[ToyConfig], Graph]] = {
    "encode": encode,
    "decode": decode,
    "remember": remember,
    "attend_bf16": lambda config: attend(config, "bf16"),
    "attend_f32": lambda config: attend(config, "f32"),
}


def trace(config: ToyConfig, names: Iterable[str] = TRACES) -> dict[str, Graph]:
    """Graphs by name."""
    return {name: TRACES[name](config) for name in names}


def shapes(config: ToyConfig) -> dict[str, tuple[int, ...]]:
    """The tensors of a checkpoint."""
    return {v.name: v.type.lengths for graph in trace(config).values() for v in graph.params}


class ToyModel(CompiledModel):
    """The toy, ready to run."""

    family = "toy"

    def __init__(self, config: ToyConfig, weights: Mapping[str, Array], **options: Any) -> None:
        super().__init__(
            config,
            weights,
            trace=trace,
            names=tuple(TRACES),
            for_one={"encode": ("B", "image")},
            exact=frozenset(("decode",)),
            **options,
        )
        self.preprocessing = Preprocessing(config.image_size, mean=(0.5,) * 3, std=(0.25,) * 3)
        self.memory_layout = MemoryLayout(config.mask_size, config.mask_size, CHANNELS)

    @property
    def feature_shapes(self) -> dict[str, tuple[int, ...]]:
        """One map of cells."""
        return {"cells": (1, self.config.mask_size**2, CHANNELS)}

    def encode(self, image: Any) -> Features:
        """Cells of images."""
        return Features(self.run("encode", image=image))

    def prepare(self, features: Features) -> Mapping[str, Buffer]:
        """Nothing is computed beforehand."""
        return features.maps

    def decode_points(self, prepared: Mapping[str, Buffer], points: Any, labels: Any) -> Decoded:
        """The same mask four times."""
        found = self._decoded(prepared["cells"], labels)
        return Decoded(found.masks, found.ious, found.stability, found.object_score)

    def decode(self, features: Features, prompts: DecoderPrompts) -> DecodedObjects:
        """Prompts of any kind."""
        return self._decoded(features.maps["cells"], prompts.labels)

    def decode_tracked(self, features: Features, count: int) -> TrackedObjects:
        """As a point that counts as nothing."""
        found = self._decoded(features.maps["cells"], np.full((count, 1), -1, np.int64))
        return TrackedObjects(found.best_mask, found.object_score, found.best_iou, found.pointer)

    def mask_prompt(self, mask: Any) -> tuple[Buffer, Buffer]:
        """Every fourth pixel."""
        logits = self.buffers.upload(np.ascontiguousarray(mask[:, :, ::4, ::4] * 20 - 10))
        return logits, logits

    def encode_memory(
        self, features: Features, masks: Buffer, object_score: Buffer, *, is_prompted: bool
    ) -> Buffer:
        """Rows of the mask."""
        memory: Buffer = self.run("remember", mask=masks)["memory"]
        return memory

    def attend(self, features: Features, read: BankRead) -> Features:
        """Cells with what is remembered."""
        found = self.run(
            f"attend_{read.stored}",
            cells=features.maps["cells"],
            pages=read.pages,
            frames=read.frames,
        )
        return Features(found, is_conditioned=True)

    @property
    def absent_pointer(self) -> Array:
        """Zeros."""
        return np.zeros((1, CHANNELS), np.float32)

    def checkpoint(self) -> dict[str, Array]:
        """The weights."""
        return dict(self.weights)

    def _decoded(self, cells: Any, labels: Any) -> DecodedObjects:
        count = len(labels)
        cells = self.buffers.repeat(cells, count) if len(cells) != count else cells
        found = self.run("decode", cells=cells, labels=np.asarray(labels, np.int64))
        mask = found["mask"]
        masks = np.repeat(mask, 4, axis=1)
        ones = np.ones((count, 4), np.float32)
        return DecodedObjects(
            masks, ones, ones, found["score"], mask, ones[:, :1], found["pointer"]
        )


CONFIG = ToyConfig()
family = Family(
    name="toy",
    configs={CONFIG.name: CONFIG},
    named={},
    trace=trace,
    weight_shapes=shapes,
    unread=lambda config: {},
    signature=lambda config: ("toy",),
    found_signature=lambda found: ("toy",) if "trunk.weight" in found else None,
    find_config=lambda wanted: wanted if isinstance(wanted, ToyConfig) else CONFIG,
    config_from_json=lambda text: ToyConfig(**json.loads(text)),
    build=ToyModel,
)

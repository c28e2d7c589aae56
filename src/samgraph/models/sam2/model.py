"""SAM 2 ready to run: its graphs as typed methods."""

import threading
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np

from samgraph.engines import Buffer, Buffers
from samgraph.engines.devices import DeviceLike
from samgraph.errors import DeviceMemoryError
from samgraph.graph import Array, Graph
from samgraph.models.compiled import CompiledModel
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
    no_prompts,
)
from samgraph.models.sam2.graph_set import GraphSet
from samgraph.models.sam2.graphs import GRAPHS
from samgraph.models.sam2.memory_bank import check_slots
from samgraph.models.sam2.tracker_config import TrackerConfig
from samgraph.runtime import CompileOptions

# In bf16 the masks of the prompt encoder and decoder change (0.88 to 0.92 IoU): never in it.
EXACT = frozenset(
    (
        "decode", "decode_tracked", "decode_alternatives", "mask_prompt", "prepare_image",
        "decode_prepared",
    )
)  # fmt: skip
FOR_ONE = {
    "image_encoder": ("B", "image"),
    "decode": ("N", "points"),
    "decode_tracked": ("N", "embedding"),
    "decode_alternatives": ("N", "embedding"),
    "memory_encoder": ("N", "mask"),
    "decode_prepared": ("N", "points"),
}


class Sam2Model(CompiledModel):
    """SAM 2 ready to run. Safe to use from several threads at once.

    A sister model is a subclass with its own graphs.
    """

    family = "sam2"
    graph_set: ClassVar[GraphSet] = GRAPHS
    prompt_graphs = ("prepare_image", "decode_prepared")
    config: TrackerConfig

    def __init__(
        self,
        config: TrackerConfig,
        weights: Mapping[str, Array],
        *,
        device: DeviceLike = "auto",
        options: CompileOptions | None = None,
        traced: Mapping[str, Graph] | None = None,
    ) -> None:
        super().__init__(
            config,
            weights,
            trace=self.graph_set.trace,
            names=self.graph_set.names,
            for_one=FOR_ONE,
            exact=EXACT,
            device=device,
            options=options,
            traced=traced,
        )
        self.preprocessing = Preprocessing(config.image_size)
        tokens, channels = config.memory_tokens, config.memory_channels
        self.memory_layout = MemoryLayout(tokens, channels, config.channels)
        self._latest = threading.local()  # the frame a thread prepared last
        side = config.mask_size
        # The mask input of so many prompts without a mask.
        self._no_mask = lru_cache(maxsize=64)(
            lambda count: self.buffers.zeros((count, 1, side, side), "f32")
        )

    def leave_device(self, full: DeviceMemoryError, used: Buffers) -> None:
        """Run on the CPU from now on; raises `full` where it does so already."""
        super().leave_device(full, used)
        self._no_mask.cache_clear()

    @property
    def feature_shapes(self) -> dict[str, tuple[int, ...]]:
        """The embedding and the high-resolution maps of one image."""
        return {name: (1, *shape) for name, shape in self.config.feature_maps.items()}

    def encode(self, image: Any) -> Features:
        """Images [B, 3, S, S], normalised -> embedding and high-resolution maps."""
        return Features(self.run("image_encoder", image=image))

    def prepare(self, features: Features) -> Mapping[str, Buffer]:
        """What the decoder computes from the image alone."""
        return self.run("prepare_image", **features.maps)

    def decode_points(self, prepared: Mapping[str, Buffer], points: Any, labels: Any) -> Decoded:
        """Points on one prepared still image."""
        return Decoded(**self.run("decode_prepared", **prepared, points=points, labels=labels))

    def decode(self, features: Features, prompts: DecoderPrompts) -> DecodedObjects:
        """Prompts of any kind on features of one image, or of one image each."""
        count, mask, has_mask = len(prompts.points), prompts.mask, prompts.has_mask
        if has_mask is None:
            has_mask = np.full(count, mask is not None)
        found = self.run(
            "decode",
            **self._repeated(features, count),
            points=prompts.points,
            labels=prompts.labels,
            mask=self._no_mask(count) if mask is None else mask,
            has_mask=has_mask,
            no_memory=np.full(count, not features.is_conditioned),
            multimask=prompts.multimask,
        )
        if "pointer" not in found:  # an image-only checkpoint
            found["pointer"] = self.buffers.zeros((count, self.config.channels), "f32")
        return DecodedObjects(**found)

    def decode_tracked(self, features: Features, count: int) -> TrackedObjects:
        """Objects without a prompt on conditioned features.

        A GPU has a graph for just that; on the host it would gain little, and `decode` is compiled
        already for the prompts.
        """
        if self.buffers.images is not None:
            return TrackedObjects(**self.run("decode_tracked", **self._repeated(features, count)))
        found = self.decode(features, no_prompts(count))
        return TrackedObjects(found.best_mask, found.object_score, found.best_iou, found.pointer)

    def decode_alternatives(self, features: Features, count: int) -> Alternatives:
        """The three masks of objects without a prompt on conditioned features."""
        found = self.run("decode_alternatives", **self._repeated(features, count))
        return Alternatives(**found)

    def mask_prompt(self, mask: Any) -> tuple[Buffer, Buffer]:
        """Masks [N, 1, S, S] of 0 and 1 -> logits to use as the result, and the mask prompt."""
        found = self.run("mask_prompt", mask=mask)
        return found["logits"], found["prompt"]

    def encode_memory(
        self, features: Features, masks: Buffer, object_score: Buffer, *, is_prompted: bool
    ) -> Buffer:
        """Mask logits [N, 1, L, L] on a frame -> memory [N, T, 64].

        Masks of prompted frames are hardened first, as in the original.
        """
        found = self.run(
            "memory_encoder",
            embedding=features.maps["embedding"],
            mask=masks,
            object_score=object_score,
            binary=np.full(len(masks), is_prompted),
        )
        memory: Buffer = found["memory"]
        return memory

    def attend(self, features: Features, read: BankRead) -> Features:
        """The frame conditioned on the memory of each object: an embedding [N, C, E, E].

        On the host, where objects attend one after another, what they share is computed once.
        """
        check_slots(self.config, read.slots)
        embedding, name = features.maps["embedding"], self.attend_graph(read)
        frame = {"embedding": embedding}
        if self.buffers.images is None:
            shared = name.replace("attend_bank", "prepare_frame").replace("_fp32", "")
            name = name.replace("attend_bank", "attend_prepared")
            kept, of, frame = getattr(self._latest, "frame", (None, "", frame))
            if kept is not embedding or of != shared:
                frame = self.run(shared, embedding=embedding)
                self._latest.frame = embedding, shared, frame
        found = self.run(
            name,
            **frame,
            pages=read.pages,
            frames=read.frames,
            slots=read.slots,
            pointer_rows=read.pointer_rows,
            pointers=read.pointers,
            pointer_times=read.pointer_times,
        )
        maps = {**features.maps, "embedding": found["embedding"]}
        return Features(maps, is_conditioned=True)

    @property
    def frame_graphs(self) -> tuple[str, ...]:
        """The graphs that a tracked frame with a full memory runs, each as one piece."""
        return ("image_encoder", "decode", "memory_encoder", "memory_attention")

    def attend_graph(self, read: BankRead) -> str:
        """The graph that attends to a memory as it is stored."""
        return "attend_bank" if read.stored == "bf16" else "attend_bank_fp32"

    @property
    def absent_pointer(self) -> Array:
        """The pointer of an object that is occluded or absent: [1, C]."""
        return self.weights["no_obj_ptr"]

    def checkpoint(self) -> dict[str, Array]:
        """Every tensor, under the names of a checkpoint."""
        unread = {} if self.report.missing else self.graph_set.unread(self.config)
        missing = {name: np.zeros(shape, np.float32) for name, shape in unread.items()}
        return missing | dict(self.weights)

    def _repeated(self, features: Features, count: int) -> dict[str, Buffer]:
        """The maps of N images; of one image for all, repeated."""
        maps = dict(features.maps)
        for name, buffer in features.maps.items():
            if len(buffer) != count:
                maps[name] = self.buffers.repeat(buffer, count)
        return maps

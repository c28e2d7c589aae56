"""The interfaces of models and model families.

`SegmentationModel` is all that `predict/` depends on: encode an image, decode prompts, encode the
memory of a frame, attend to memory. A family may have another trunk, another layout of memory, or
no high-resolution features; values passed between its methods are opaque to callers.

Shapes: B images, N prompts or objects, P points, C channels, S image size, L mask size, T memory
tokens per frame, F remembered frames, Q object pointers.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from operator import attrgetter
from typing import Any, Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from samgraph.checkpoint import LoadReport
from samgraph.engines import Buffer, Buffers
from samgraph.errors import DeviceMemoryError
from samgraph.exporters import ExportOptions
from samgraph.graph import Array, Graph
from samgraph.graph.types import DType
from samgraph.runtime import Session

_NBYTES = attrgetter("nbytes")
# The label of padding points, which fill the shorter lists of a batch.
ABSENT = -2
# The label of a point that ends a list; alone, it stands for no prompt.
NO_POINT = -1


@dataclass(frozen=True, slots=True)
class Preprocessing:
    """Preprocessing of pixels: resized to a square of `size`, scaled to 0..1, normalised."""

    size: int
    mean: tuple[float, float, float] = (0.485, 0.456, 0.406)
    std: tuple[float, float, float] = (0.229, 0.224, 0.225)


@dataclass(frozen=True, slots=True)
class MemoryLayout:
    """The memory of an object on a frame: a mask memory [T, channels] and a pointer [C]."""

    tokens: int
    channels: int
    pointer_channels: int


@dataclass(frozen=True, slots=True, eq=False)
class Features:
    """The output of the image encoder: feature maps by name, each [B, ...].

    `is_conditioned`: whether memory attention has been applied.
    """

    maps: Mapping[str, Buffer]
    is_conditioned: bool = False

    def __len__(self) -> int:
        return len(next(iter(self.maps.values())))

    @property
    def nbytes(self) -> int:
        """Their size in bytes."""
        return sum(map(_NBYTES, self.maps.values()))

    def image(self, index: int) -> "Features":
        """Those of one image, [1, ...]; views."""
        maps = {name: buffer[index : index + 1] for name, buffer in self.maps.items()}
        return replace(self, maps=maps)


@dataclass(frozen=True, slots=True, eq=False)
class DecoderPrompts:
    """N prompts on the model's input: points [N, P, 2], labels [N, P], mask logits [N, 1, L, L]."""

    points: Array
    labels: Array
    multimask: NDArray[np.bool_]  # [N]
    mask: Buffer | None = None
    has_mask: NDArray[np.bool_] | None = None  # [N]; None: all have one


@lru_cache(maxsize=64)
def no_prompts(count: int) -> DecoderPrompts:
    """What the decoder is given for objects that are tracked: no point at all."""
    return DecoderPrompts(
        np.zeros((count, 1, 2), np.float32),
        np.full((count, 1), NO_POINT, np.int64),
        np.ones(count, np.bool_),
    )


@dataclass(frozen=True, slots=True, eq=False)
class Decoded:
    """The four masks of each prompt with their scores."""

    masks: Buffer  # [N, 4, L, L] logits
    ious: Buffer  # [N, 4]
    stability: Buffer  # [N, 4]
    object_score: Buffer  # [N, 1]


@dataclass(frozen=True, slots=True, eq=False)
class DecodedObjects(Decoded):
    """The same, with the selected mask of each object and its object pointer."""

    best_mask: Buffer  # [N, 1, L, L]; -1024 where the object is occluded or absent
    best_iou: Buffer  # [N, 1]
    pointer: Buffer  # [N, C]


@dataclass(frozen=True, slots=True, eq=False)
class TrackedObjects:
    """The answer for objects without a prompt, as in `DecodedObjects`."""

    best_mask: Buffer
    object_score: Buffer
    best_iou: Buffer
    pointer: Buffer


@dataclass(frozen=True, slots=True, eq=False)
class Alternatives:
    """All M masks the decoder offers for objects without a prompt."""

    masks: Buffer  # [N, M, L, L]; -1024 where the object is occluded or absent
    ious: Buffer  # [N, M]
    object_score: Buffer  # [N, 1]
    pointers: Buffer  # [N, M, C]


@dataclass(frozen=True, slots=True, eq=False)
class BankRead:
    """What N objects read from a memory bank: rows of its pages, in the order of attention."""

    pages: Buffer  # [rows, T, channels], as stored
    stored: DType  # their dtype
    frames: NDArray[np.int64]  # [N, F] rows of `pages`
    slots: NDArray[np.int64]  # [N, F] rows of the temporal position encoding
    pointer_rows: Buffer  # [rows, C]
    pointers: NDArray[np.int64]  # [N, Q] rows of `pointer_rows`
    pointer_times: NDArray[np.float32]  # [N, Q] distances in time, scaled to 0..1

    def part(self, start: int, stop: int) -> "BankRead":
        """What some of the objects read."""
        some = slice(start, stop)
        return replace(
            self,
            frames=self.frames[some],
            slots=self.slots[some],
            pointers=self.pointers[some],
            pointer_times=self.pointer_times[some],
        )


class ModelConfig(Protocol):
    """The fields of a config that predictors read. Families add others."""

    @property
    def name(self) -> str:
        """The name of the model for users."""

    @property
    def image_size(self) -> int:
        """S."""

    @property
    def mask_size(self) -> int:
        """L."""

    @property
    def memory_frames(self) -> int:
        """Rows of the temporal position encoding: one for prompted frames, the rest for others."""

    @property
    def max_pointers(self) -> int:
        """The most pointers of tracked frames, plus one."""

    @property
    def signed_pointer_time(self) -> bool:
        """Whether pointers of the future have negative distances."""

    @property
    def everything_iou(self) -> float:
        """The predicted IoU from which automatic masks are kept, unless a user says another."""

    @property
    def everything_stability(self) -> float:
        """The stability score from which they are kept."""

    @property
    def obeys_clicks(self) -> bool:
        """Whether clicks on a tracked frame are answered without memory, which helps to choose.

        Of prompted frames, later ones read that where the track began; others count as tracked.
        """

    def at_size(self, image_size: int) -> Self:
        """The same model for another input size."""

    def to_json(self) -> str:
        """Text that the family's `config_from_json` reads back."""


class SegmentationModel(Protocol):
    """A model ready to run. Safe to use from several threads at once."""

    family: str
    config: Any
    weights: Mapping[str, Array]
    session: Session
    graphs: Mapping[str, Any]
    buffers: Buffers  # operations on the values passed between its methods
    preprocessing: Preprocessing
    memory_layout: MemoryLayout
    report: LoadReport  # what its checkpoint lacks

    @property
    def feature_shapes(self) -> dict[str, tuple[int, ...]]:
        """The feature maps of one image."""

    def leave_device(self, full: DeviceMemoryError, used: Buffers) -> None:
        """Run on the CPU from now on; raises `full` where it does so already."""

    def compiling_for_prompts(self) -> AbstractContextManager[None]:
        """While the block runs, what points on an image need is made ready beside it."""

    def encode(self, image: Any) -> Features:
        """Images [B, 3, S, S], normalised."""

    def prepare(self, features: Features) -> Mapping[str, Buffer]:
        """What the decoder computes from the image alone, for `decode_points`."""

    def decode_points(self, prepared: Mapping[str, Buffer], points: Any, labels: Any) -> Decoded:
        """Points on one prepared still image."""

    def decode(self, features: Features, prompts: DecoderPrompts) -> DecodedObjects:
        """Prompts of any kind on features of one image, or of one image each."""

    def decode_tracked(self, features: Features, count: int) -> TrackedObjects:
        """Objects without a prompt on conditioned features, [count, ...] or the same for all."""

    def mask_prompt(self, mask: Any) -> tuple[Buffer, Buffer]:
        """Masks [N, 1, S, S] of 0 and 1 -> logits to use as the result, and the mask prompt."""

    def encode_memory(
        self, features: Features, masks: Buffer, object_score: Buffer, *, is_prompted: bool
    ) -> Buffer:
        """The mask memory of objects on a frame, [N, T, channels]."""

    def attend(self, features: Features, read: BankRead) -> Features:
        """The frame conditioned on the memory of each object, [N, ...]."""

    @property
    def absent_pointer(self) -> Array:
        """The pointer of an object that is occluded or absent: [1, C]."""

    def checkpoint(self) -> dict[str, Array]:
        """Every tensor, under the names of a checkpoint."""


@runtime_checkable
class OffersAlternatives(Protocol):
    """A model whose decoder gives several masks for a tracked object."""

    def decode_alternatives(self, features: Features, count: int) -> Alternatives:
        """As `decode_tracked`, before one of the masks is selected."""


@dataclass(frozen=True, slots=True)
class ExportPlan:
    """What is exported of a model: graphs, and what a manifest says about calling them.

    Args:
        graphs: Traced graphs by name.
        exact: Graphs that lose masks in a lower precision.
        about: What each graph does.
        values: What each input and output is, by name.
        symbols: What each symbolic length counts.
        constants: Numbers that a caller needs, as JSON.
        steps: The calling order of each task, as JSON.
    """

    graphs: Mapping[str, Graph]
    exact: frozenset[str]
    about: Mapping[str, str]
    values: Mapping[str, str]
    symbols: Mapping[str, str]
    constants: Mapping[str, Any]
    steps: Mapping[str, Any]

    def with_graphs(self, graphs: Mapping[str, Graph]) -> "ExportPlan":
        """The same with other graphs, and the tasks that run none but them."""
        runs = {task: {step.get("run") for step in steps} for task, steps in self.steps.items()}
        possible = {task: s for task, s in self.steps.items() if runs[task] <= {None, *graphs}}
        return replace(self, graphs=graphs, steps=possible)

    def options(self, options: ExportOptions) -> ExportOptions:
        """The options, with the graphs that stay exact."""
        return replace(options, exact=options.exact | self.exact)


@dataclass(frozen=True, slots=True)
class Family:
    """A model family: its configs, how its checkpoints are recognised, and how it is built.

    Args:
        name: Its name in the registry.
        configs: Configs that a checkpoint can be recognised as, by name.
        named: Configs that must be given by name: their checkpoints look like another's.
        trace: The graphs of a config, by name; together they read every tensor of a checkpoint.
            A second argument chooses some of them.
        weight_shapes: The name and shape of every tensor of a checkpoint for a config.
        unread: Tensors of checkpoints that no graph reads, with their shapes.
        signature: A key that distinguishes its configs.
        found_signature: The same key from a checkpoint's shapes; None for another family.
        find_config: A config from its name, itself, or a mapping of fields.
        config_from_json: The inverse of a config's `to_json`.
        build: The model of a config and its weights.
        export_plan: What is exported, of a config and its weights; None if it cannot be exported.
        approximations: Names of the approximations it has. With `pooled-memory` its configs have a
            field `memory_pool`.
        variants: By the name of a config, the named configs whose checkpoints have the same
            tensors: told apart by the name or hash of the file alone.
    """

    name: str
    configs: Mapping[str, Any]
    named: Mapping[str, Any]
    trace: Callable[..., dict[str, Graph]]
    weight_shapes: Callable[[Any], dict[str, tuple[int, ...]]]
    unread: Callable[[Any], Mapping[str, tuple[int, ...]]]
    signature: Callable[[Any], tuple[object, ...]]
    found_signature: Callable[[Mapping[str, tuple[int, ...]]], tuple[object, ...] | None]
    find_config: Callable[[Any], Any]
    config_from_json: Callable[[str], Any]
    build: Callable[..., SegmentationModel]
    export_plan: Callable[[Any, Mapping[str, Array]], ExportPlan] | None = None
    approximations: frozenset[str] = frozenset(("few-memories", "small-input"))
    variants: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

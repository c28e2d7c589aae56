"""How videos and streams are tracked: frozen options shared by library, command line and server."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar, get_args

from samgraph.errors import OptionError
from samgraph.media.video.source import OnDamage
from samgraph.models.family import SegmentationModel
from samgraph.predict.options import check_names
from samgraph.predict.video.bank import STORED_AS, MemoryPrecision
from samgraph.predict.video.policies.table import DEFAULT, check_policy, find_policy, make_policy
from samgraph.predict.video.policy import MemoryPolicy
from samgraph.untrusted.arguments import choice, flag, number, whole

Options = TypeVar("Options", bound="TrackOptions")


@dataclass(frozen=True, slots=True)
class DisplayOptions:
    """How logits become masks.

    Args:
        mask_threshold: The logit above which a pixel belongs to an object.
        score_threshold: The object score above which an object counts as present.
        overlaps: Whether a pixel may belong to several objects.
        fill_holes: The largest hole to fill, in pixels of the low-resolution mask.
    """

    mask_threshold: float = 0.0
    score_threshold: float = 0.0
    overlaps: bool = True
    fill_holes: int = 0


@dataclass(frozen=True, slots=True)
class TrackOptions:
    """Options that videos and streams share.

    Args:
        memory_precision: How mask memory is stored: "bf16", as the reference does, or "fp32".
        policy: What frames read of memory, by name: "sam2" (if omitted), "quality-gated",
            "motion-aware" or "distractor-aware"; or a `MemoryPolicy`.
        max_prompted: The most prompted frames a frame reads, the nearest; 1 for the one where the
            track began. If omitted, all; of the built-in model, 1.
        stride: Remember every n-th frame, and the last.
        fill_holes: The largest hole to fill, in pixels of the low-resolution mask.
        overlaps: Whether a pixel may belong to several objects.
        mask_threshold: The logit above which a pixel belongs to an object.
        score_threshold: The object score above which an object counts as present.
        length: The number of frames, where the source does not know it: pointers are dated in
            units of min(length, 16) frames; without it, of 16.
        objects_at_once: The most objects in one run of a graph; what suits the device if omitted.
    """

    memory_precision: MemoryPrecision = "bf16"
    policy: MemoryPolicy | str | None = None
    max_prompted: int | None = None
    stride: int = 1
    fill_holes: int = 0
    overlaps: bool = True
    mask_threshold: float = 0.0
    score_threshold: float = 0.0
    length: int | None = None
    objects_at_once: int | None = None

    def __post_init__(self) -> None:
        choice("memory_precision", self.memory_precision, STORED_AS)
        if isinstance(self.policy, str):
            find_policy(self.policy)
        elif self.policy is not None and not isinstance(self.policy, MemoryPolicy):
            got = f"a {type(self.policy).__name__}"
            expected = "a name or a `MemoryPolicy`"
            raise OptionError("`policy` is no memory policy", got=got, expected=expected)
        self._keep("fill_holes", whole("fill_holes", self.fill_holes))
        self._keep("overlaps", flag("overlaps", self.overlaps))
        for name in ("mask_threshold", "score_threshold"):
            self._keep(name, number(name, getattr(self, name)))
        for name in ("max_prompted", "length", "objects_at_once"):
            if getattr(self, name) is not None:
                self._keep(name, whole(name, getattr(self, name), 1))
        self._keep("stride", whole("stride", self.stride, 1))

    def _keep(self, name: str, value: object) -> None:
        """Have a number of numpy as Python's own, which JSON can hold."""
        object.__setattr__(self, name, value)

    @property
    def display(self) -> DisplayOptions:
        """How logits become masks."""
        return DisplayOptions(
            self.mask_threshold, self.score_threshold, self.overlaps, self.fill_holes
        )

    def policy_for(self, model: SegmentationModel) -> MemoryPolicy:
        """The policy given, or the named one for a model.

        Raises:
            OptionError: The model cannot be tracked with it.
        """
        policy = DEFAULT if self.policy is None else self.policy
        if isinstance(policy, str):
            policy = make_policy(
                policy, model.config, max_prompted=self.max_prompted, stride=self.stride
            )
        check_policy(policy, model)
        return policy


@dataclass(frozen=True, slots=True)
class StreamOptions(TrackOptions):
    """Options of a stream whose objects come from a detector, in addition.

    Args:
        match_iou: The IoU of boxes from which a detection belongs to a tracked object.
        min_score: The score from which a detection becomes a new object.
        end_after: Steps without a detection after which such an object ends.
        max_objects: The most objects; of those from detections, the longest missed end first.
    """

    match_iou: float = field(default=0.5, kw_only=True)
    min_score: float = field(default=0.0, kw_only=True)
    end_after: int = field(default=30, kw_only=True)
    max_objects: int = field(default=64, kw_only=True)

    def __post_init__(self) -> None:
        TrackOptions.__post_init__(self)
        self._keep("match_iou", number("match_iou", self.match_iou, 0, 1))
        self._keep("min_score", number("min_score", self.min_score))
        for name in ("end_after", "max_objects"):
            self._keep(name, whole(name, getattr(self, name), 1))


@dataclass(frozen=True, slots=True)
class VideoOptions(TrackOptions):
    """Options of a video, in addition to those of a stream.

    Args:
        on_damage: Raise an error at a frame that cannot be read, or skip it.
        cache_mb: Megabytes of encoded frames to keep (16 per frame at 1024 pixels).
        results_mb: Megabytes of results to keep, to show them again.
        archive_mb: Megabytes of older memories, so that corrections far back are quick.
        cache_frames: Decoded frames to keep; see `samgraph.media.video.frames.open_frames`.
        max_pixels: The most pixels a frame may have.
    """

    on_damage: OnDamage = field(default="error", kw_only=True)
    cache_mb: float = field(default=128, kw_only=True)
    results_mb: float = field(default=16, kw_only=True)
    archive_mb: float = field(default=24, kw_only=True)
    cache_frames: int | None = field(default=None, kw_only=True)
    max_pixels: int | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        TrackOptions.__post_init__(self)
        choice("on_damage", self.on_damage, get_args(OnDamage))
        for name in ("cache_mb", "results_mb", "archive_mb"):
            self._keep(name, number(name, getattr(self, name), 0))
        for name in ("cache_frames", "max_pixels"):
            if getattr(self, name) is not None:
                self._keep(name, whole(name, getattr(self, name), 1))


def read_options(kind: type[Options], given: Mapping[str, Any], what: str) -> Options:
    """Options by name; one that does not exist is refused with those that are near.

    Raises:
        OptionError: There is no such option, or its value makes no sense.
    """
    check_names(given, [field.name for field in fields(kind)], f"a {what}")
    return kind(**given)

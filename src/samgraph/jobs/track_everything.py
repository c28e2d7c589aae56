"""Jobs that track everything in a video, without prompts: `samgraph track --everything`."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from samgraph.errors import OptionError
from samgraph.formats.segment import DEFAULT_LABEL
from samgraph.formats.table import WriteOptions, find_format
from samgraph.jobs.track import (
    PALETTE_SIZE,
    FrameRange,
    TrackingOptions,
    described_run,
)
from samgraph.jobs.track_output import ObjectNames
from samgraph.jobs.tracking import EverythingTracking
from samgraph.predict.model import Model
from samgraph.predict.video.discovery import DiscoveryOptions, read_discovery
from samgraph.predict.video.prompts import ObjectId
from samgraph.predict.video.video import Video


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """Whether everything is tracked, and the options given for it; None for the defaults."""

    everything: bool = False
    every: int | None = None
    max_objects: int | None = None
    points_per_side: int | None = None

    def discovery(self) -> DiscoveryOptions:
        """The options of the search."""
        given = asdict(self)
        del given["everything"]
        return read_discovery({name: value for name, value in given.items() if value is not None})

    def refuse_unused(self) -> None:
        """Refuse options of a search that is not asked for.

        Raises:
            OptionError: There is one.
        """
        if self != SearchOptions():
            raise OptionError(
                "options of a search are given, and no search is", hint="add --everything"
            )


class OwnNumbers(Mapping[ObjectId, int]):
    """The number of every object is its id."""

    def __getitem__(self, name: ObjectId) -> int:
        if not isinstance(name, int):
            raise KeyError(name)
        return name

    def __iter__(self) -> Iterator[ObjectId]:
        return iter(())

    def __len__(self) -> int:
        return 0


@dataclass(frozen=True, slots=True)
class FoundNames(ObjectNames):
    """Objects that were found: their ids are their numbers, and all have one label, or none."""

    numbers: Mapping[ObjectId, int] = field(default_factory=OwnNumbers)
    found_label: str | None = None

    def label(self, name: ObjectId) -> str | None:
        """The same for every object."""
        return self.found_label

    @property
    def classes(self) -> tuple[str, ...]:
        """The one label."""
        return (self.found_label or DEFAULT_LABEL,)


@dataclass(frozen=True, slots=True)
class EverythingJob:
    """Everything that decides the results of a run without prompts.

    Args:
        video: A video file or a folder of images.
        out: The folder of the run.
        formats: Names of the table in `samgraph.formats`.
        frame_range: Which frames; forward only.
        tracking: How they are read and tracked.
        write: What the formats leave open.
        label: What all objects are called in annotations.
        discovery: When new things are searched for, and which become objects. In a palette image
            (`davis`) there are 255 objects at most: then no more are found.
    """

    video: str
    out: Path
    formats: tuple[str, ...] = ("davis",)
    frame_range: FrameRange = field(default_factory=FrameRange)
    tracking: TrackingOptions = field(default_factory=TrackingOptions)
    write: WriteOptions = field(default_factory=WriteOptions)
    label: str | None = None
    discovery: DiscoveryOptions = field(default_factory=DiscoveryOptions)

    def __post_init__(self) -> None:
        for format_name in self.formats:
            find_format(format_name)
        if self.frame_range.reverse or self.frame_range.both:
            raise OptionError("everything is tracked forward", got="another direction")
        if "davis" in self.formats:
            most = min(self.discovery.max_ids or PALETTE_SIZE, PALETTE_SIZE)
            object.__setattr__(self, "discovery", replace(self.discovery, max_ids=most))

    @property
    def names(self) -> ObjectNames:
        """What objects are called in files."""
        return FoundNames(found_label=self.label)

    @property
    def sizes(self) -> tuple[int, int]:
        """The most objects, and the most prompted frames, that are remembered at once."""
        return self.discovery.max_objects, self.discovery.max_objects

    def frames(self, video: Video) -> list[int]:
        """The frames of the run, in tracking order."""
        return self.frame_range.frames((0,), video.source.length or 0)

    def begin(self, video: Video, session: Path | None) -> EverythingTracking:
        """From the start, or from what an earlier run saved."""
        return EverythingTracking.begin(video, self.discovery, self.frame_range, session)

    def described(self, model: Model, video: Video) -> dict[str, Any]:
        """What distinguishes this run from others, for `run.json`."""
        return described_run(self, model, video) | {
            "objects": {},
            "labels": {} if self.label is None else {"": self.label},
            "everything": asdict(self.discovery),
        }

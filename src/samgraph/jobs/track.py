"""A tracking run: from a job to files, from the start or from where an earlier run stopped."""

import hashlib
import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from samgraph.errors import OptionError, OutputError
from samgraph.formats.table import WriteOptions, find_format
from samgraph.jobs.interruption import interrupt_on_terminate
from samgraph.jobs.journal import JOURNAL, RUN, SESSION, Journal, RunFolder, frame_record
from samgraph.jobs.limits import Needs, limits_within
from samgraph.jobs.prompts import Prompts
from samgraph.jobs.run_files import frame_names, remove_files, run_files, with_objects
from samgraph.jobs.track_output import ObjectNames, TrackOutput, free_numbers
from samgraph.jobs.tracking import PromptedTracking, Tracking
from samgraph.media.video.frames import open_frames
from samgraph.media.video.source import OnDamage
from samgraph.predict.features import fingerprint
from samgraph.predict.model import Model
from samgraph.predict.video.policies.table import DEFAULT
from samgraph.predict.video.prompts import ObjectId
from samgraph.predict.video.video import Video
from samgraph.progress import Progress, ShowProgress

SESSION_SECONDS = 20.0
SAMPLE_BYTES = 1 << 16
DEFAULT_CACHE_MB = 64.0
PALETTE_SIZE = 255


@dataclass(frozen=True, slots=True)
class FrameRange:
    """Which frames are tracked, in which order.

    Args:
        start: The first frame; the first prompted frame if omitted (the last, in reverse).
        end: The last frame, included; that of the video if omitted (frame 0, in reverse).
        reverse: Towards frame 0.
        both: Forward from `start` to `end`, then back from `start` to frame 0.
    """

    start: int | None = None
    end: int | None = None
    reverse: bool = False
    both: bool = False

    def __post_init__(self) -> None:
        if self.both and self.reverse:
            raise OptionError("`both` has both directions", got="`reverse` as well")

    def frames(self, prompted: Iterable[int], length: int) -> list[int]:
        """The frame indices in tracking order, for a video of `length` frames."""
        first = self.start
        if first is None:
            first = max(prompted) if self.reverse else min(prompted)
        last = self.end if self.end is not None else (0 if self.reverse else length - 1)
        if self.reverse:
            return list(range(first, last - 1, -1))
        forward = range(first, min(last, length - 1) + 1)
        return [*forward, *range(first - 1, -1, -1)] if self.both else list(forward)


@dataclass(frozen=True, slots=True)
class TrackingOptions:
    """How a video is read and tracked; see `open_video`."""

    on_damage: OnDamage = "error"
    memory_precision: str = "bf16"
    fill_holes: int = 0
    overlaps: bool = True
    policy: str = DEFAULT


@dataclass(frozen=True, slots=True)
class TrackJob:
    """Everything that decides the results of a run.

    Args:
        video: A video file or a folder of images.
        prompts: By object and frame index.
        out: The folder of the run.
        formats: Names of the table in `samgraph.formats`.
        frame_range: Which frames are tracked, in which order.
        tracking: How.
        write: What the formats leave open.
        labels: Names of objects in annotations; an id that is a text is its label by default.
    """

    video: str
    prompts: Prompts
    out: Path
    formats: tuple[str, ...] = ("davis",)
    frame_range: FrameRange = field(default_factory=FrameRange)
    tracking: TrackingOptions = field(default_factory=TrackingOptions)
    write: WriteOptions = field(default_factory=WriteOptions)
    labels: Mapping[ObjectId, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for format_name in self.formats:
            find_format(format_name)
        for name, number in self.numbers.items() if "davis" in self.formats else ():
            if not 1 <= number <= PALETTE_SIZE:
                raise OptionError(
                    f"object `{name}` does not fit in a palette image",
                    expected=f"a number from 1 to {PALETTE_SIZE}, or a text",
                    hint="give it another id, or choose another --format",
                )

    @property
    def numbers(self) -> dict[ObjectId, int]:
        """The number of each object in images: its id, or for a text the next free number."""
        return free_numbers(name for name, _ in self.prompts)

    def frames(self, video: Video) -> list[int]:
        """The frames of the run, in tracking order."""
        return self.frame_range.frames(
            (frame for _, frame in self.prompts), video.source.length or 0
        )

    @property
    def names(self) -> ObjectNames:
        """What objects are called in files."""
        return ObjectNames(self.numbers, self.labels)

    @property
    def sizes(self) -> tuple[int, int]:
        """The number of objects, and of prompted frames."""
        return len(self.numbers), len(self.prompts)

    def begin(self, video: Video, session: Path | None) -> PromptedTracking:
        """Add the objects to the video, or what an earlier run saved of them."""
        return PromptedTracking(video, self.prompts, self.frame_range, session)

    def described(self, model: Model, video: Video) -> dict[str, Any]:
        """What distinguishes this run from others, for `run.json`."""
        return described_run(self, model, video) | {
            "objects": {str(name): number for name, number in self.numbers.items()},
            "labels": {str(name): label for name, label in self.labels.items()},
            "prompts": [
                {"object": name, "frame": frame, **prompt.described()}
                for (name, frame), prompt in self.prompts.items()
            ],
        }


class Job(Protocol):
    """What a run needs to know: of prompted objects, or of everything."""

    @property
    def video(self) -> str:
        """A video file or a folder of images."""

    @property
    def out(self) -> Path:
        """The folder of the run."""

    @property
    def formats(self) -> tuple[str, ...]:
        """Names of the table in `samgraph.formats`."""

    @property
    def frame_range(self) -> FrameRange:
        """Which frames are tracked."""

    @property
    def tracking(self) -> TrackingOptions:
        """How."""

    @property
    def write(self) -> WriteOptions:
        """What the formats leave open."""

    @property
    def names(self) -> ObjectNames:
        """What objects are called in files."""

    @property
    def sizes(self) -> tuple[int, int]:
        """The most objects, and prompted frames, that are remembered at once."""

    def frames(self, video: Video) -> list[int]:
        """The frames of the run, in tracking order."""

    def begin(self, video: Video, session: Path | None) -> Tracking:
        """The frames from the start, or from what an earlier run saved."""

    def described(self, model: Model, video: Video) -> dict[str, Any]:
        """What distinguishes this run from others."""


def described_run(job: Job, model: Model, video: Video) -> dict[str, Any]:
    """The content of `run.json` for any run: video, model, formats, frames and options."""
    return {
        "video": {
            "name": video.source.name,
            "frames": video.length,
            "size_hw": list(video.size_hw),
            "digest": _digest(job.video),
        },
        "model": {
            "name": model.config.name,
            "weights": fingerprint(model.core),
            "precision": model.core.session.options.precision,
        },
        "formats": list(job.formats),
        "frames": asdict(job.frame_range),
        "options": {
            **asdict(job.tracking),
            "objects_at_once": min(video.at_once, job.sizes[0]),
        },
        "write": asdict(job.write),
    }


@dataclass(frozen=True, slots=True)
class RunOptions:
    """How a job is run; the results do not depend on it.

    Args:
        resume: Continue the run in the job's folder, if there is one.
        overwrite: Remove the files of an earlier run in the job's folder first.
        max_memory_mb: The most memory for frames and objects, without the model.
        progress: See `samgraph.progress`.
    """

    resume: bool = False
    overwrite: bool = False
    max_memory_mb: float | None = None
    progress: ShowProgress = None

    def __post_init__(self) -> None:
        if self.resume and self.overwrite:
            raise OptionError("an earlier run is either continued or replaced", got="both")


@dataclass(frozen=True, slots=True)
class TrackReport:
    """How a run ended: frames written, skipped and attempted, what was damaged, and the files."""

    written: int
    skipped: int
    attempted: int
    damage: str | None
    rate: float | None  # frames per second of this run; None where all frames were done before
    files: tuple[Path, ...] = ()


def run_track(job: Job, load: Callable[[], Model], options: RunOptions) -> TrackReport:
    """Track and write, from the start or from where an earlier run stopped.

    Raises:
        OutputError: The folder belongs to another run, or cannot be written.
        CapacityError: The objects do not fit in the memory allowed.
    """
    model = load()
    limits: dict[str, Any] = {"cache_mb": DEFAULT_CACHE_MB}
    if options.max_memory_mb is not None:
        limits = limits_within(options.max_memory_mb, _needs(model, job))
    with _opened(model, job, limits) as video, interrupt_on_terminate():
        described = job.described(model, video)
        clear = _remove_run if options.overwrite else None
        folder = RunFolder(job.out, described, resume=options.resume, replace=clear)
        progress = Progress(
            len(job.frames(video)),
            "frames",
            done=len(folder.journal.frames),
            show=options.progress,
        )
        formats = [find_format(name) for name in job.formats]
        output = TrackOutput(job.out, formats, job.names, job.write)
        try:
            if folder.ending is None:
                tracking = job.begin(video, folder.session if options.resume else None)
                _track(tracking, video, folder, output, progress)
                output.finish(folder.journal, video.source)
                folder.finish(_ending(video, job, folder.journal))
            rate = progress.rate if progress.fresh else None
            names = frame_names(folder.journal.records())
            own = [job.out / RUN, job.out / JOURNAL]
            files = (*own, *run_files(job.out, with_objects(described, folder.journal), names))
            return TrackReport(**(folder.ending or {}), rate=rate, files=files)
        finally:
            output.close()
            folder.close()


def _remove_run(folder: Path, run: dict[str, Any]) -> None:
    """Remove what an earlier run wrote, and nothing else."""
    journal = Journal(folder / JOURNAL)
    try:
        files = run_files(folder, with_objects(run, journal), frame_names(journal.records()))
    finally:
        journal.close()
    remove_files(folder, [*files, *(folder / name for name in (RUN, JOURNAL, SESSION))])


def _track(
    tracking: Tracking,
    video: Video,
    folder: RunFolder,
    output: TrackOutput,
    progress: Progress,
) -> None:
    """Every frame: its files, then its line; every 20 seconds the state to resume from."""
    saved, last = time.monotonic(), None
    try:
        with progress:
            for result in tracking.results(images=output.needs_pixels):
                last = result.index
                if result.index not in folder.journal.frames:
                    output.write_frame(result)
                    folder.journal.append(frame_record(result, video.damage))
                    progress.advance()
                if time.monotonic() - saved >= SESSION_SECONDS:
                    _save_session(tracking, folder, progress)
                    saved = time.monotonic()
    except KeyboardInterrupt:
        if last is None or last in folder.journal.frames:  # else the state is beyond what is done
            _save_session(tracking, folder, progress)
        raise
    folder.journal.sync()


def _save_session(tracking: Tracking, folder: RunFolder, progress: Progress) -> None:
    """Save what resuming needs. Where that does not fit on the disk, the run continues without.

    A run that is stopped then resumes from the session saved before, or from its start.
    """
    folder.journal.sync()
    try:
        tracking.save(folder.session)
    except OutputError as error:
        progress.note(f"the session was not saved, so a stop would cost more: {error.got}")


def _ending(video: Video, job: Job, journal: Journal) -> dict[str, Any]:
    """How the run ended, for `run.json`; every frame is accounted for.

    From the journal alone, so that it is the same however often the run was stopped.
    """
    missing = [frame for frame in job.frames(video) if frame not in journal.frames]
    damage = replace(
        video.damage,
        missing=tuple(missing),
        concealed=tuple(sorted(journal.concealed)),
        resized=tuple(sorted(journal.resized)),
    )
    return {
        "written": len(journal.frames),
        "skipped": len(missing),
        "attempted": len(journal.frames) + len(missing),
        "damage": str(damage) if damage.is_damaged else None,
    }


def _opened(model: Model, job: Job, limits: dict[str, Any]) -> Video:
    return model.video(job.video, **asdict(job.tracking), results_mb=0, archive_mb=0, **limits)


def _needs(model: Model, job: Job) -> Needs:
    with open_frames(job.video, on_damage=job.tracking.on_damage, cache_frames=1) as source:
        size_hw = source.size_hw
    is_fp32 = job.tracking.memory_precision == "fp32"
    at_once = model.core.session.objects_at_once
    return Needs(model.config, size_hw, *job.sizes, is_fp32, at_once)


def _digest(path: str) -> str:
    """Which video this is: its size and some of its bytes; of a folder, names and sizes."""
    digest = hashlib.sha256()
    if os.path.isdir(path):
        for entry in sorted(os.scandir(path), key=lambda entry: entry.name):
            if entry.is_file() and not entry.name.startswith("."):
                digest.update(os.fsencode(f"{entry.name}:{entry.stat().st_size};"))
        return digest.hexdigest()[:16]
    with Path(path).open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        digest.update(str(size).encode())
        for offset in (0, size // 2, max(0, size - SAMPLE_BYTES)):
            file.seek(offset)
            digest.update(file.read(SAMPLE_BYTES))
    return digest.hexdigest()[:16]

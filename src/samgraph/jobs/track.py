"""A tracking run: from a job to files, from the start or from where an earlier run stopped."""

import hashlib
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from samgraph.errors import CheckpointError, OptionError, OutputError
from samgraph.formats.table import WriteOptions, find_format
from samgraph.jobs.interruption import interrupt_on_terminate
from samgraph.jobs.journal import JOURNAL, RUN, SESSION, Journal, RunFolder, frame_record
from samgraph.jobs.limits import Needs, limits_within
from samgraph.jobs.prompts import Prompts
from samgraph.jobs.run_files import frame_names, remove_files, run_files
from samgraph.jobs.track_output import ObjectNames, TrackOutput, free_numbers
from samgraph.media.video.frames import open_frames
from samgraph.media.video.source import OnDamage
from samgraph.predict.features import fingerprint
from samgraph.predict.model import Model
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

    def described(self, model: Model, video: Video) -> dict[str, Any]:
        """What distinguishes this run from others, for `run.json`."""
        at_once = video.at_once
        return {
            "video": {
                "name": video.source.name,
                "frames": video.length,
                "size_hw": list(video.size_hw),
                "digest": _digest(self.video),
            },
            "model": {
                "name": model.config.name,
                "weights": fingerprint(model.core),
                "precision": model.core.session.options.precision,
            },
            "formats": list(self.formats),
            "objects": {str(name): number for name, number in self.numbers.items()},
            "labels": {str(name): label for name, label in self.labels.items()},
            "prompts": [
                {"object": name, "frame": frame, **prompt.described()}
                for (name, frame), prompt in self.prompts.items()
            ],
            "frames": asdict(self.frame_range),
            "options": {
                **asdict(self.tracking),
                "objects_at_once": min(at_once, len(self.numbers)),
            },
            "write": asdict(self.write),
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


def run_track(job: TrackJob, load: Callable[[], Model], options: RunOptions) -> TrackReport:
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
        output = TrackOutput(job.out, formats, ObjectNames(job.numbers, job.labels), job.write)
        try:
            if folder.ending is None:
                position = _prepared(video, job, folder, resume=options.resume)
                _track(video, job, folder, output, position, progress)
                output.finish(folder.journal, video.source)
                folder.finish(_ending(video, job, folder.journal))
            rate = progress.rate if progress.fresh else None
            names = frame_names(folder.journal.records())
            own = [job.out / RUN, job.out / JOURNAL]
            files = (*own, *run_files(job.out, described, names))
            return TrackReport(**(folder.ending or {}), rate=rate, files=files)
        finally:
            output.close()
            folder.close()


def _remove_run(folder: Path, run: dict[str, Any]) -> None:
    """Remove what an earlier run wrote, and nothing else."""
    journal = Journal(folder / JOURNAL)
    try:
        files = run_files(folder, run, frame_names(journal.records()))
    finally:
        journal.close()
    remove_files(folder, [*files, *(folder / name for name in (RUN, JOURNAL, SESSION))])


def _prepared(video: Video, job: TrackJob, folder: RunFolder, *, resume: bool) -> int | None:
    """Add the objects to the video; returns the frame to resume from, None for the start."""
    if resume and folder.session.exists():
        from samgraph.predict.video.sessions import restore_video

        with suppress(CheckpointError):  # then tracking restarts; finished frames stay
            restore_video(video, folder.session)
            return video.position
    for (name, frame), prompt in job.prompts.items():
        video.add(frame=frame, object=name, **prompt.arguments())
    return None


def _track(
    video: Video,
    job: TrackJob,
    folder: RunFolder,
    output: TrackOutput,
    position: int | None,
    progress: Progress,
) -> None:
    """Every frame: its files, then its line; every 20 seconds the state to resume from."""
    saved = time.monotonic()
    try:
        with progress:
            for result in _results(video, job, position, images=output.needs_pixels):
                if result.index not in folder.journal.frames:
                    output.write_frame(result)
                    folder.journal.append(frame_record(result, video.damage))
                    progress.advance()
                if time.monotonic() - saved >= SESSION_SECONDS:
                    _save_session(video, folder, progress)
                    saved = time.monotonic()
    except KeyboardInterrupt:
        _save_session(video, folder, progress)
        raise
    folder.journal.sync()


def _save_session(video: Video, folder: RunFolder, progress: Progress) -> None:
    """Save what resuming needs. Where that does not fit on the disk, the run continues without.

    A run that is stopped then resumes from the session saved before, or from its start.
    """
    folder.journal.sync()
    try:
        video.save(folder.session)
    except OutputError as error:
        progress.note(f"the session was not saved, so a stop would cost more: {error.got}")


def _results(video: Video, job: TrackJob, position: int | None, *, images: bool) -> Iterator[Any]:
    """The results of the frames that are left."""
    if position is None:
        return video.track(**asdict(job.frame_range), images=images)
    return _left(video, job, position, images)


def _left(video: Video, job: TrackJob, position: int, images: bool) -> Iterator[Any]:
    """The results of the frames after a saved session's position."""
    frames = job.frames(video)
    first, forward = frames[0], [frame for frame in frames if frame >= frames[0]]
    if job.frame_range.reverse:
        if position >= frames[-1]:
            yield from video.track(start=position, end=frames[-1], reverse=True, images=images)
        return
    if not video.is_going_back and position <= forward[-1]:
        yield from video.track(start=position, end=forward[-1], images=images)
    begin = position if video.is_going_back else first - 1
    if job.frame_range.both and begin >= 0:
        yield from video.track(start=begin, end=0, reverse=True, images=images)


def _ending(video: Video, job: TrackJob, journal: Journal) -> dict[str, Any]:
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


def _opened(model: Model, job: TrackJob, limits: dict[str, Any]) -> Video:
    return model.video(job.video, **asdict(job.tracking), results_mb=0, archive_mb=0, **limits)


def _needs(model: Model, job: TrackJob) -> Needs:
    with open_frames(job.video, on_damage=job.tracking.on_damage, cache_frames=1) as source:
        size_hw = source.size_hw
    is_fp32 = job.tracking.memory_precision == "fp32"
    at_once = model.core.session.objects_at_once
    return Needs(model.config, size_hw, len(job.numbers), len(job.prompts), is_fp32, at_once)


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

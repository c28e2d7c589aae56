"""A run of `samgraph track`: from its plan to files, from the start or from where it stopped."""

import hashlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any

from samgraph.errors import CheckpointError, OptionError, OutputError
from samgraph.jobs.endings import write_coco_file, write_overlay
from samgraph.jobs.journal import Journal, RunFolder, frame_record, write_masks
from samgraph.jobs.limits import Needs, limits_within
from samgraph.jobs.progress import Progress
from samgraph.jobs.prompts import Given
from samgraph.media.video.frames import open_frames
from samgraph.media.video.source import OnDamage
from samgraph.models.sam2.config import Sam2Config
from samgraph.predict.features import fingerprint
from samgraph.predict.model import Model
from samgraph.predict.video.object_prompts import ObjectId
from samgraph.predict.video.video import Video

FORMATS = ("davis", "png", "overlay", "coco", "jsonl")
SESSION_SECONDS = 20.0
SAMPLE_BYTES = 1 << 16
DEFAULT_CACHE_MB = 64.0
PALETTE_SIZE = 255


@dataclass(frozen=True, slots=True)
class Plan:
    """What decides the results of a run."""

    video: str
    prompts: dict[tuple[ObjectId, int], Given]
    out: Path
    kind: str
    start: int | None
    end: int | None
    reverse: bool
    both: bool
    on_damage: OnDamage
    memory_precision: str
    fill_holes: int
    overlaps: bool

    @property
    def numbers(self) -> dict[ObjectId, int]:
        """The number each object has in images: its own, or for a text the next one free."""
        names = dict.fromkeys(name for name, _ in self.prompts)
        numbers = {name: name for name in names if isinstance(name, int)}
        free = (n for n in range(1, len(names) + PALETTE_SIZE) if n not in numbers.values())
        return {name: name if isinstance(name, int) else next(free) for name in names}

    def described(self, model: Model, video: Video, precision: str) -> dict[str, Any]:
        """What tells this run from others, for `run.json`."""
        at_once = video.follower.tracker.settings["objects_at_once"]
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
                "precision": precision,
            },
            "format": self.kind,
            "objects": {str(name): number for name, number in self.numbers.items()},
            "prompts": [
                {"object": name, "frame": frame, **given.described()}
                for (name, frame), given in self.prompts.items()
            ],
            "frames": {
                "start": self.start,
                "end": self.end,
                "reverse": self.reverse,
                "both": self.both,
            },
            "options": {
                "on_damage": self.on_damage,
                "memory_precision": self.memory_precision,
                "fill_holes": self.fill_holes,
                "overlaps": self.overlaps,
                "objects_at_once": min(at_once, len(self.numbers)),
            },
        }


@dataclass(frozen=True, slots=True)
class Report:
    """How a run ended: frames written, skipped and attempted, and what was damaged."""

    written: int
    skipped: int
    attempted: int
    damage: str | None
    rate: float | None  # frames per second of this run; None where nothing was left to do


def run_plan(
    plan: Plan,
    load: Callable[[], Model],
    *,
    precision: str,
    resume: bool,
    max_memory_mb: float | None,
    quiet: bool,
) -> Report:
    """Track and write, from the start or from where an earlier run stopped.

    The model is loaded after the plan was checked.
    """
    if plan.both and plan.reverse:
        raise OptionError("--both has both directions", got="--reverse as well")
    for name, number in plan.numbers.items() if plan.kind == "davis" else ():
        if not 1 <= number <= PALETTE_SIZE:
            raise OptionError(
                f"object `{name}` has no place in a palette image",
                expected=f"a number from 1 to {PALETTE_SIZE}, or a text",
                hint="give it another one, or choose another --format",
            )
    model = load()
    limits: dict[str, Any] = {"cache_mb": DEFAULT_CACHE_MB}
    if max_memory_mb is not None:
        limits = limits_within(max_memory_mb, _needs(model.config, plan))
    with _opened(model, plan, limits) as video, _stopping_on_terminate():
        described = plan.described(model, video, precision)
        folder = RunFolder(plan.out, described, resume=resume)
        progress = Progress(
            len(_frames(plan, video)), done=len(folder.journal.frames), is_quiet=quiet
        )
        try:
            if folder.ending is None:
                position = _prepared(video, plan, folder, resume=resume)
                _track(video, plan, folder, position, progress)
                _write_endings(video, plan, folder)
                folder.finish(_ending(video, plan, folder.journal))
            rate = progress.rate if progress.fresh else None
            return Report(**(folder.ending or {}), rate=rate)
        finally:
            folder.close()


def _prepared(video: Video, plan: Plan, folder: RunFolder, *, resume: bool) -> int | None:
    """Have the objects in the video; returns the frame to go on from, None for the start."""
    if resume and folder.session.exists():
        from samgraph.predict.video.sessions import restore_video

        with suppress(CheckpointError):  # then the run is done again from its start
            restore_video(video, folder.session)
            return video.position
    for (name, frame), given in plan.prompts.items():
        video.add(frame=frame, object=name, **given.arguments())
    return None


def _track(
    video: Video, plan: Plan, folder: RunFolder, position: int | None, progress: Progress
) -> None:
    """Every frame: its files, then its line; now and then all that is needed to go on."""
    saved = time.monotonic()
    try:
        for result in _results(video, plan, position):
            if result.index not in folder.journal.frames:
                write_masks(plan.out, plan.kind, result, plan.numbers)
                folder.journal.append(frame_record(result, video.damage))
                progress.step()
            if time.monotonic() - saved >= SESSION_SECONDS:
                _save_session(video, folder, progress)
                saved = time.monotonic()
    except KeyboardInterrupt:
        _save_session(video, folder, progress)
        raise
    finally:
        progress.finish()
    folder.journal.sync()


def _save_session(video: Video, folder: RunFolder, progress: Progress) -> None:
    """Save what is needed to go on. Where that does not fit on the disk, the run goes on without.

    A run that is stopped then goes on from the session saved before, or from its start.
    """
    folder.journal.sync()
    try:
        video.save(folder.session)
    except OutputError as error:
        progress.note(f"the session was not saved, so a stop would cost more: {error.got}")


def _results(video: Video, plan: Plan, position: int | None) -> Iterator[Any]:
    """The frames of the plan that are left."""
    if position is None:
        return video.track(start=plan.start, end=plan.end, reverse=plan.reverse, both=plan.both)
    return _left(video, plan, position)


def _left(video: Video, plan: Plan, position: int) -> Iterator[Any]:
    """What is left of the plan, where a saved session stopped."""
    frames = _frames(plan, video)
    first, forward = frames[0], [frame for frame in frames if frame >= frames[0]]
    if plan.reverse:
        if position >= frames[-1]:
            yield from video.track(start=position, end=frames[-1], reverse=True)
        return
    if not video.is_going_back and position <= forward[-1]:
        yield from video.track(start=position, end=forward[-1])
    begin = position if video.is_going_back else first - 1
    if plan.both and begin >= 0:
        yield from video.track(start=begin, end=0, reverse=True)


def _write_endings(video: Video, plan: Plan, folder: RunFolder) -> None:
    """The files that hold all frames, made of the journal."""
    if plan.kind == "coco":
        write_coco_file(folder, video.size_hw, plan.numbers)
    elif plan.kind == "overlay":
        write_overlay(folder, video.source, plan.numbers)


def _ending(video: Video, plan: Plan, journal: Journal) -> dict[str, Any]:
    """How the run went, for `run.json`: every frame is accounted for.

    Told by the journal, so that it is the same however often the run was stopped.
    """
    missing = [frame for frame in _frames(plan, video) if frame not in journal.frames]
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


def _opened(model: Model, plan: Plan, limits: dict[str, Any]) -> Video:
    return model.video(
        plan.video,
        on_damage=plan.on_damage,
        memory_precision=plan.memory_precision,
        fill_holes=plan.fill_holes,
        overlaps=plan.overlaps,
        results_mb=0,
        archive_mb=0,
        **limits,
    )


def _needs(config: Sam2Config, plan: Plan) -> Needs:
    with open_frames(plan.video, on_damage=plan.on_damage, cache_frames=1) as source:
        size_hw = source.size_hw
    is_wide = plan.memory_precision == "fp32"
    return Needs(config, size_hw, len(plan.numbers), len(plan.prompts), is_wide)


def _frames(plan: Plan, video: Video) -> list[int]:
    """The frames of the run, in order."""
    known = video.source.length or 0
    prompted = [frame for _, frame in plan.prompts]
    first = plan.start
    if first is None:
        first = max(prompted) if plan.reverse else min(prompted)
    last = plan.end if plan.end is not None else (0 if plan.reverse else known - 1)
    if plan.reverse:
        return list(range(first, last - 1, -1))
    forward = range(first, min(last, known - 1) + 1)
    return [*forward, *range(first - 1, -1, -1)] if plan.both else list(forward)


@contextmanager
def _stopping_on_terminate() -> Iterator[None]:
    """Take a request to end as an interruption, so that all is saved."""

    def interrupt(_: int, __: FrameType | None) -> None:
        raise KeyboardInterrupt

    try:
        before = signal.signal(signal.SIGTERM, interrupt)
    except ValueError:  # not the main thread
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _digest(path: str) -> str:
    """Which video this is: its size, and some of its bytes; of a folder, names and sizes."""
    digest = hashlib.sha256()
    if os.path.isdir(path):
        for entry in sorted(os.scandir(path), key=lambda entry: entry.name):
            if entry.is_file() and not entry.name.startswith("."):
                digest.update(os.fsencode(f"{entry.name}:{entry.stat().st_size};"))
        return digest.hexdigest()[:16]
    with Path(path).open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        digest.update(str(size).encode())
        for place in (0, size // 2, max(0, size - SAMPLE_BYTES)):
            file.seek(place)
            digest.update(file.read(SAMPLE_BYTES))
    return digest.hexdigest()[:16]

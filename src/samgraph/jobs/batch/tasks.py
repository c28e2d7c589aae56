"""What a worker does with inputs: read, compute, write.

A group of inputs goes through three stages: files are read and decoded; the model runs on them, its
encoder on all of them at once; results are written or encoded. Threads of a worker each take a
group through all stages, and share the model one group at a time, so that one group is computed
while another is decoded and a third is written.
"""

import errno
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

import numpy as np

from samgraph.errors import (
    CapacityError,
    ImageError,
    OptionError,
    OutputError,
    PromptError,
    SamgraphError,
    VideoError,
)
from samgraph.formats.coco import annotation_of
from samgraph.formats.segment import Segment
from samgraph.jobs.batch.inputs import Input
from samgraph.jobs.batch.remote import is_remote, read_remote
from samgraph.jobs.batch.scheduler import Failure, Outcome, Success
from samgraph.jobs.batch.shards import Destination
from samgraph.jobs.prompt_files import PromptRow, predict_rows
from samgraph.jobs.prompts import FramePrompt
from samgraph.jobs.track import Job, RunOptions, TrackingOptions, TrackJob, run_track
from samgraph.jobs.track_everything import EverythingJob
from samgraph.media.image.reading import read_image
from samgraph.predict.everything.options import EverythingOptions
from samgraph.predict.features import fingerprint
from samgraph.predict.image.encoded import EncodedImage, encode_pixels
from samgraph.predict.model import Model
from samgraph.predict.output import Picture
from samgraph.predict.video.discovery import DiscoveryOptions
from samgraph.predict.video.prompts import ObjectId
from samgraph.untrusted.text import json_bytes, shown

Task: TypeAlias = Literal["segment", "everything", "track", "embed"]
TASKS: tuple[str, ...] = get_args(Task)
LONGEST_MESSAGE = 1000
# Errors of a file system that may be gone when it is asked again.
PASSING = {
    getattr(errno, name)
    for name in (
        "EIO", "EAGAIN", "EINTR", "ESTALE", "ETIMEDOUT", "ECONNRESET", "ENETUNREACH",
        "EHOSTUNREACH", "EMFILE", "ENFILE", "ENOMEM", "EBUSY",
    )
    if hasattr(errno, name)
}  # fmt: skip
REASONS: tuple[tuple[type[SamgraphError], str], ...] = (
    (ImageError, "unusable image"),
    (VideoError, "unusable video"),
    (PromptError, "unusable prompt"),
    (CapacityError, "too large for the limits"),
    (OutputError, "cannot be written"),
)


@dataclass(frozen=True, slots=True)
class TaskOptions:
    """What is done with every input.

    Args:
        task: "segment" prompts, "everything", "track" objects through videos, or "embed": save what
            the encoder makes of images.
        out: Where embeddings and folders of videos go.
        all_masks: Three masks per prompt, not the best.
        everything: Options of automatic masks.
        formats: What is written of a tracked video.
        tracking: How videos are read and tracked.
        search: How everything is found in videos without a prompt; None where those fail.
    """

    task: Task
    out: str
    all_masks: bool = False
    everything: EverythingOptions = field(default_factory=EverythingOptions)
    formats: tuple[str, ...] = ("davis",)
    tracking: TrackingOptions = field(default_factory=TrackingOptions)
    search: DiscoveryOptions | None = None

    def __post_init__(self) -> None:
        if self.task not in TASKS:
            raise OptionError(f"there is no task `{self.task}`", expected=", ".join(TASKS))

    def described(self) -> dict[str, Any]:
        """What distinguishes results from those of other options."""
        fields: dict[str, Any] = {"task": self.task}
        if self.task == "segment":
            fields["all_masks"] = self.all_masks
        if self.task == "everything":
            chosen = asdict(self.everything)
            fields["everything"] = {k: v for k, v in chosen.items() if not isinstance(v, list)}
        if self.task == "track":
            fields["formats"] = list(self.formats)
            fields["tracking"] = asdict(self.tracking)
            fields["search"] = None if self.search is None else asdict(self.search)
        return fields


class StopError(Exception):
    """No input can be worked on: `cause` says why, such as a full disk."""

    def __init__(self, cause: SamgraphError) -> None:
        self.cause = cause
        super().__init__(str(cause))


class TaskRunner:
    """A model, and what is done with it; `run` may be called from several threads."""

    def __init__(self, model: Model, options: TaskOptions) -> None:
        self._model, self._options = model, options
        self._turn = threading.Lock()

    @property
    def about(self) -> dict[str, Any]:
        """Which model this is."""
        core = self._model.core
        return {
            "name": core.config.name,
            "weights": fingerprint(core),
            "precision": core.session.options.precision,
        }

    def warm_up(self) -> None:
        """Compile what images need, on a blank one; costs about as much as an image."""
        if self._options.task == "track":
            return
        blank = Picture("blank", (64, 64), np.zeros((64, 64, 3), np.uint8))
        (image,) = self._encoded([blank])
        if self._options.task != "embed":
            image.predict(box=(8, 8, 56, 56), multimask=False)

    def run(self, inputs: Sequence[Input]) -> list[Outcome]:
        """An outcome for each input of a group.

        Raises:
            StopError: The output cannot be written at all.
        """
        if self._options.task == "track":
            return [self._guarded(self._track, found) for found in inputs]
        read = [self._guarded_read(found) for found in inputs]
        pictures = [picture for picture in read if isinstance(picture, Picture)]
        try:
            with self._turn:
                images = iter(self._encoded(pictures))
                computed = [
                    picture
                    if isinstance(picture, Failure)
                    else self._guarded(self._compute, found, next(images))
                    for found, picture in zip(inputs, read, strict=True)
                ]
        except Exception as error:  # of the encoder, so of no single image
            failed = failure_of(error)
            failed = replace(failed, may_pass=failed.may_pass or len(pictures) > 1)
            return [one if isinstance(one, Failure) else failed for one in read]
        return [
            made if isinstance(made, Failure) else self._guarded(self._finish, found, made)
            for found, made in zip(inputs, computed, strict=True)
        ]

    def _guarded(self, stage: Any, *given: Any) -> Any:
        """What a stage returns, or why it failed."""
        try:
            return stage(*given)
        except Exception as error:  # a bug of ours, too, must not stop a run
            if isinstance(error, OutputError) and is_hopeless(error):
                raise StopError(error) from error
            return failure_of(error)

    def _guarded_read(self, found: Input) -> Picture | Failure:
        made: Picture | Failure = self._guarded(_read, found)
        return made

    def _encoded(self, pictures: list[Picture]) -> list[EncodedImage]:
        """Images go through the encoder together: it has them at one size, whatever theirs."""
        if not pictures:
            return []
        core = self._model.core
        made = zip(pictures, encode_pixels(core, pictures), strict=True)
        return [EncodedImage(core, picture, embedding) for picture, embedding in made]

    def _compute(self, found: Input, image: EncodedImage) -> Any:
        """The part that needs the model."""
        options = self._options
        if options.task == "embed":
            return image.embedding
        if options.task == "everything":
            return self._model.everything(image, progress=False, options=options.everything)
        rows = found.rows
        if not rows:
            raise PromptError(f"`{found.name}` has no prompt")
        result = predict_rows(image, rows, all_masks=options.all_masks)
        return result if options.all_masks else result.best

    def _finish(self, found: Input, made: Any) -> Outcome:
        """The part that does not: masks at full size as run lengths, or an embedding's file."""
        if self._options.task == "embed":
            return _success({"file": self._save_embedding(found, made)})
        height, width = made.picture.size_hw
        masks = [described(segment) for segment in made.segments]
        return _success({"height": height, "width": width, "annotations": masks})

    def _save_embedding(self, found: Input, embedding: Any) -> str:
        name = f"embeddings/{found.stem}.safetensors"
        destination = Destination(self._options.out)
        named = replace(embedding, name=found.name)
        if not destination.is_remote:
            target = Path(destination.base) / name
            target.parent.mkdir(parents=True, exist_ok=True)
            named.save(target)
            return name
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "embedding.safetensors"
            named.save(file)
            destination.write(name, file.read_bytes())
        return name

    def _track(self, found: Input) -> Outcome:
        """A video, tracked into a folder of its own; one that was begun before goes on."""
        if is_remote(found.path):
            raise VideoError("videos are read from files", got=found.path)
        folder = f"videos/{found.stem}"
        job = self._video_job(found, Path(self._options.out) / folder)
        with self._turn:
            report = run_track(job, lambda: self._model, RunOptions(resume=True, progress=False))
        fields = {"folder": folder, "frames": report.written, "skipped": report.skipped}
        return _success({**fields, "damage": report.damage} if report.damage else fields)

    def _video_job(self, found: Input, out: Path) -> Job:
        """What is tracked in a video: its prompts, or everything."""
        options, prompts = self._options, video_prompts(found)
        if prompts:
            labels = {name: row.label for name, row in named_rows(found) if row.label}
            return TrackJob(
                found.path, prompts, out, options.formats, tracking=options.tracking, labels=labels
            )
        if options.search is None:
            raise PromptError(f"`{found.name}` has no prompt")
        return EverythingJob(
            found.path, out, options.formats, tracking=options.tracking, discovery=options.search
        )


def described(segment: Segment) -> dict[str, Any]:
    """A mask as results have it: a COCO annotation without ids, with its label."""
    fields = annotation_of(segment)
    return fields if segment.label is None else {**fields, "label": segment.label}


def named_rows(found: Input) -> list[tuple[ObjectId, PromptRow]]:
    """The prompts of a video with their objects; objects without an id are numbered."""
    return [
        (number if row.object_id is None else row.object_id, row)
        for number, row in enumerate(found.rows, start=1)
    ]


def video_prompts(found: Input) -> dict[tuple[ObjectId, int], FramePrompt]:
    """The prompts of a video by object and frame; rows of one object and frame are one prompt.

    Raises:
        PromptError: A box is relative, whose pixels nobody knows before the video is read, or an
            object has two boxes on a frame.
    """
    prompts: dict[tuple[ObjectId, int], FramePrompt] = {}
    for name, row in named_rows(found):
        if row.is_relative:
            raise PromptError(f"{row.where}: prompts of videos are in pixels")
        before = prompts.get((name, row.frame), FramePrompt())
        if before.box is not None and row.box is not None:
            raise PromptError(
                f"{row.where}: object `{shown(str(name))}` has two boxes on frame {row.frame}"
            )
        prompts[name, row.frame] = FramePrompt(
            (*before.points, *row.points, *row.negatives),
            (*before.labels, *[1] * len(row.points), *[0] * len(row.negatives)),
            before.box if row.box is None else row.box,
        )
    return prompts


def failure_of(error: Exception) -> Failure:
    """Why an input failed, and whether another attempt may succeed."""
    message = str(error)[:LONGEST_MESSAGE] or type(error).__name__
    if isinstance(error, SamgraphError):
        named = next((words for kind, words in REASONS if isinstance(error, kind)), None)
        reason = named or type(error).__name__
        return Failure(reason, message, may_pass=_may_pass(error))
    return Failure(f"error in samgraph: {type(error).__name__}", message, may_pass=True)


def _may_pass(error: SamgraphError) -> bool:
    cause = error.__cause__
    if isinstance(error, OutputError):
        return True  # what cannot be written at all has stopped the run
    if isinstance(cause, OSError) and cause.errno in PASSING:
        return True
    return isinstance(cause, TimeoutError | ConnectionError)


def is_hopeless(error: OutputError) -> bool:
    """Whether nothing more can be written: the disk is full, or may not be written to."""
    cause: BaseException | None = error
    while cause is not None:
        code = getattr(cause, "errno", None)
        if code in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM):
            return True
        cause = cause.__cause__
    return False


def _read(found: Input) -> Picture:
    source: Any = read_remote(found.path) if is_remote(found.path) else found.path
    pixels = read_image(source)
    return Picture(found.name, (pixels.shape[0], pixels.shape[1]), pixels)


def _success(body: dict[str, Any]) -> Success:
    return Success(json_bytes(body, compact=True))

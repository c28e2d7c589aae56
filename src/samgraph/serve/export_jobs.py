"""Exports of videos: jobs that write every format of the command line, or a video with an effect.

The frames go through a journal and the writers of `jobs/`, as those of `samgraph track` do. One job
runs at a time, and yields to clicks after every frame.
"""

import logging
import secrets
import shutil
import threading
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path, PurePath
from typing import Any, Literal

import numpy as np

from samgraph.errors import PromptError, SamgraphError
from samgraph.formats.table import FORMATS, WriteOptions
from samgraph.jobs.journal import JOURNAL, Journal
from samgraph.jobs.track_output import ObjectNames, TrackOutput
from samgraph.media.drawing import overlay
from samgraph.media.image.reading import Rgb
from samgraph.media.mask import rle as run_lengths
from samgraph.media.video.writer import VideoWriter
from samgraph.predict.video.export import OVERLAY, frame_rate
from samgraph.serve.effects import apply_opaque, object_paint, read_effect
from samgraph.serve.exports import EFFECT, checked_format, video_suffix
from samgraph.serve.replies import RequestError, message_of
from samgraph.serve.schema import JobState, VideoExportBody
from samgraph.serve.video_sessions import VideoSession

LOG = logging.getLogger("samgraph.serve")

Opening = Callable[[], AbstractContextManager[VideoSession]]
Draw = Callable[[Rgb, list[dict[str, Any]]], Rgb]


class CancelledError(Exception):
    """The job was cancelled."""


class ExportJob:
    """One export: its state, and the file when it is done."""

    def __init__(self, folder: Path, name: str, body: VideoExportBody, opening: Opening) -> None:
        self.id, self.body = secrets.token_hex(8), body
        self._folder, self._opening = folder / self.id, opening
        self.state: Literal["waiting", "running", "done", "failed", "cancelled"] = "waiting"
        self.done = self.total = 0
        self._message: str | None = None
        self._hint: str | None = None
        self._is_cancelled = False
        suffix = ".mp4" if body.format == EFFECT else video_suffix(FORMATS[body.format])
        self.file_name = f"{PurePath(name).stem or 'video'}_{body.format}{suffix}"

    @property
    def is_over(self) -> bool:
        """Whether it is done, failed or cancelled."""
        return self.state in ("done", "failed", "cancelled")

    @property
    def path(self) -> Path:
        """The file, once it is done."""
        return self._folder / f"export{PurePath(self.file_name).suffix}"

    @property
    def reply(self) -> JobState:
        """How far it is."""
        name = self.file_name if self.state == "done" else None
        return JobState(self.state, self.done, self.total, self._message, self._hint, name)

    def cancel(self) -> None:
        """Cancel the job."""
        self._is_cancelled = True

    def discard(self) -> None:
        """Delete its files."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def run(self) -> None:
        """Run the job; errors are in its state."""
        try:
            self.state = "running"
            self._folder.mkdir(parents=True)
            with self._opening() as session:
                self._export(session)
            self.state = "done"
        except CancelledError:
            self._end("cancelled", None, None)
        except SamgraphError as error:
            self._end("failed", message_of(error), error.hint)
        except Exception:
            LOG.exception("an export failed")
            self._end("failed", "the server failed to export", "its log says where")

    def _end(
        self, state: Literal["failed", "cancelled"], message: str | None, hint: str | None
    ) -> None:
        self.discard()
        self._message, self._hint, self.state = message, hint, state

    def _export(self, session: VideoSession) -> None:
        frames = session.masks.frames().tolist()
        if not frames:
            raise PromptError("there is nothing to export", hint="track the video first")
        numbers = self._names(session)
        journal = Journal(self._folder / JOURNAL)
        try:
            self.total = 2 * len(frames)
            for record in self._records(session, frames, numbers):
                journal.append(record)
                self._step()
            self._write(session, journal, {name: number for number, name in numbers.items()})
        finally:
            journal.close()

    def _write(self, session: VideoSession, journal: Journal, ids: dict[int | str, int]) -> None:
        body = self.body
        if body.format == "jsonl":
            (self._folder / JOURNAL).rename(self.path)
        elif body.format == EFFECT:
            self._write_video(session, journal, self._effect(session, ids))
        elif body.format == OVERLAY:

            def tinted(pixels: Rgb, objects: list[dict[str, Any]]) -> Rgb:
                masks = [run_lengths.decode(obj["segmentation"]) for obj in objects]
                stack = np.stack(masks) if masks else np.zeros((0, *pixels.shape[:2]), np.bool_)
                return overlay(pixels, stack, object_ids=[ids[obj["id"]] for obj in objects])

            self._write_video(session, journal, tinted)
        else:
            self._write_files(session, journal, ids)
        self.done = self.total

    def _write_files(
        self, session: VideoSession, journal: Journal, ids: dict[int | str, int]
    ) -> None:
        """A file per frame in a zip, or one file of all frames."""
        chosen, folder = FORMATS[self.body.format], self._folder / "files"
        options = WriteOptions(tolerance=self.body.tolerance, crop=self.body.crop)
        output = TrackOutput(folder, [chosen], ObjectNames(ids), options)
        if chosen.video_file is None:
            for image in output.images(journal, session.video.size_hw):
                stem = PurePath(image.name).stem
                pixels = session.pixels(int(stem)) if chosen.needs_pixels else None
                with session.turns.frame():
                    output.write_image(replace(image, pixels=pixels))
                self._step()
        output.finish(journal, session.video.source)
        if chosen.video_file is not None:
            (folder / chosen.video_file).rename(self.path)
            return
        with zipfile.ZipFile(self.path, "x", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
            for file in sorted(path for path in folder.rglob("*") if path.is_file()):
                archive.write(file, str(file.relative_to(folder)))
        shutil.rmtree(folder)

    def _write_video(self, session: VideoSession, journal: Journal, draw: Draw) -> None:
        """A video of all tracked frames, at the rate of the source."""
        size_hw, rate = session.video.size_hw, frame_rate(session.video.source)
        with VideoWriter(self.path, size_hw, rate=rate) as video:
            for record in journal.records():
                pixels = session.pixels(record["frame"])
                with session.turns.frame():
                    video.write(draw(pixels, record["objects"]))
                self._step()

    def _effect(self, session: VideoSession, ids: dict[int | str, int]) -> Draw:
        effect = self.body.effect
        colors = {obj.id: obj.color for obj in session.document.objects}

        def drawn(pixels: Rgb, objects: list[dict[str, Any]]) -> Rgb:
            painted = []
            for obj in objects:
                number = ids[obj["id"]]
                mask = run_lengths.decode(obj["segmentation"])
                painted.append(object_paint(number, colors.get(number), mask))
            return pixels if effect is None else apply_opaque(effect, pixels, painted)

        return drawn

    def _names(self, session: VideoSession) -> dict[int, int | str]:
        """The name of each object in files: its name, if no other has it, or its number."""
        found: dict[int, int | str] = {}
        for obj in list(session.document.objects):
            is_free = obj.name and obj.name not in found.values()
            found[obj.id] = obj.name if is_free and obj.name else obj.id
        return found

    def _records(
        self, session: VideoSession, frames: Sequence[int], names: dict[int, int | str]
    ) -> Iterator[dict[str, Any]]:
        """The lines of the journal."""
        height, width = session.video.size_hw
        for frame in frames:
            lines = [line for line in session.masks.on(frame) if line.object in names]
            objects = [
                {
                    "id": names[line.object],
                    "present": line.present,
                    "prompted": line.prompted,
                    "score": line.score,
                    "object_score": line.object_score,
                    "area": line.area,
                    "box": list(line.box),
                    "segmentation": {"size": [height, width], "counts": line.counts},
                }
                for line in lines
            ]
            seconds = session.video.source.time(frame)
            time = None if seconds is None else round(seconds, 6)
            yield {"frame": frame, "time": time, "objects": objects}

    def _step(self) -> None:
        self.done += 1
        if self._is_cancelled:
            raise CancelledError("the export was cancelled")


class ExportJobs:
    """Exports by id; one runs at a time, and the oldest finished are dropped."""

    def __init__(self, folder: Path, most: int) -> None:
        self._folder, self._most = folder, most
        self._jobs: dict[str, ExportJob] = {}
        self._lock, self._turn = threading.Lock(), threading.Lock()
        self._threads: list[threading.Thread] = []
        shutil.rmtree(folder, ignore_errors=True)

    def begin(self, name: str, body: VideoExportBody, opening: Opening) -> ExportJob:
        """Start an export.

        Raises:
            OptionError: There is no such format or effect.
            RequestError: Too many exports run (503).
        """
        checked_format(body.format, body.effect, tuple(FORMATS))
        if body.effect is not None:
            read_effect(body.effect)
        with self._lock:
            over = [job for job in self._jobs.values() if job.is_over]
            for job in over[: max(0, len(self._jobs) - self._most + 1)]:
                del self._jobs[job.id]
                job.discard()
            if len(self._jobs) >= self._most:
                raise RequestError(503, "too many exports are running", retry_after=10)
            job = ExportJob(self._folder, name, body, opening)
            self._jobs[job.id] = job
            thread = threading.Thread(target=self._run, args=(job,), name="export", daemon=True)
            self._threads = [each for each in self._threads if each.is_alive()] + [thread]
            thread.start()
        return job

    def find(self, name: str) -> ExportJob:
        """A job by id.

        Raises:
            RequestError: There is none.
        """
        with self._lock:
            job = self._jobs.get(name)
        if job is None:
            raise RequestError(404, "there is no such job")
        return job

    def close(self) -> None:
        """Cancel running jobs, and delete all files."""
        with self._lock:
            for job in self._jobs.values():
                job.cancel()
            threads = list(self._threads)
        for thread in threads:
            thread.join()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _run(self, job: ExportJob) -> None:
        with self._turn:
            job.run()

"""The files of a tracking run in each of its formats: frame by frame, or all frames at the end.

With one format the files are in the folder of the run, with several each has a folder of its own.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from samgraph.errors import OutputError, VideoError
from samgraph.formats.segment import DEFAULT_LABEL, Segment, SegmentedImage
from samgraph.formats.table import Format, WriteOptions
from samgraph.formats.yolo import write_classes
from samgraph.jobs.journal import Journal, make_folder
from samgraph.media.drawing import overlay
from samgraph.media.files import write_atomically
from samgraph.media.mask import rle as run_lengths
from samgraph.media.video.frames import FrameSource
from samgraph.media.video.writer import VideoWriter
from samgraph.predict.video.prompts import ObjectId
from samgraph.predict.video.result import FrameResult

DEFAULT_RATE = 25.0
OVERLAY = "overlay"


class TrackOutput:
    """Writes the results of a run; `numbers` are the objects' ids in images, from 1 to 255."""

    def __init__(
        self,
        folder: Path,
        formats: Sequence[Format],
        numbers: Mapping[ObjectId, int],
        options: WriteOptions,
    ) -> None:
        self._numbers = dict(numbers)
        labels = dict.fromkeys(n if isinstance(n, str) else DEFAULT_LABEL for n in numbers)
        self._options = replace(options, classes=tuple(labels))
        single = len(formats) == 1
        self._folders = {
            format.name: folder if single else folder / format.name for format in formats
        }
        self._own_folders = [] if single else list(self._folders.values())
        for leftover in (file for own in self._own_folders for file in own.glob(".*.part")):
            leftover.unlink(missing_ok=True)  # of a process that was killed while it wrote
        self._per_frame = [format for format in formats if format.video_file is None]
        self._joined = [format for format in formats if format.video_file is not None]

    @property
    def needs_pixels(self) -> bool:
        """Whether `write_frame` needs results that hold their frame."""
        return any(format.needs_pixels for format in self._per_frame)

    def write_frame(self, result: FrameResult) -> None:
        """The files of one frame, each whole or not at all."""
        image = replace(result.segments(self._numbers), pixels=result.image)
        self.write_image(f"{result.index:05d}", image)

    def write_image(self, stem: str, image: SegmentedImage) -> None:
        """The files of one frame, from its segments."""
        for format in self._per_frame:
            for own_stem, part in self._parts(format, stem, image):
                file = make_folder(self._folders[format.name]) / f"{own_stem}{format.suffixes[0]}"
                write_atomically(file, format.encode([part], self._options))

    def finish(self, journal: Journal, source: FrameSource) -> None:
        """The files that hold all frames, from the journal, and the lists of classes."""
        for format in self._joined:
            if format.name == OVERLAY:
                file = make_folder(self._folders[format.name]) / str(format.video_file)
                self._write_overlay(file, journal, source)
            elif format.encoder is not None:
                images = list(self.images(journal, source.size_hw))
                file = make_folder(self._folders[format.name]) / str(format.video_file)
                write_atomically(file, format.encode(images, self._options))
        for format in self._per_frame:
            if format.class_file is not None:
                file = make_folder(self._folders[format.name]) / format.class_file
                write_classes(file, self._options.classes or ())

    def close(self) -> None:
        """Remove the folders of formats that nothing was written in."""
        for folder in self._own_folders:
            with suppress(OSError):  # not there, or not empty
                folder.rmdir()

    def _parts(
        self, format: Format, stem: str, image: SegmentedImage
    ) -> Iterator[tuple[str, SegmentedImage]]:
        """The images that are a file each: one per frame, or one per object of it."""
        if not format.has_file_per_mask:
            yield stem, image
            return
        for segment in image.segments:
            yield f"{stem}_{segment.object_id}", replace(image, segments=(segment,))

    def images(self, journal: Journal, size_hw: tuple[int, int]) -> Iterator[SegmentedImage]:
        """Every frame of the journal; an object that is absent has no segment."""
        for record in self._fitting(journal, size_hw):
            segments = tuple(self._segments(record))
            yield SegmentedImage(f"{record['frame']:05d}.png", size_hw, segments)

    def _fitting(self, journal: Journal, size_hw: tuple[int, int]) -> Iterator[dict[str, Any]]:
        """The lines of the journal, whose objects and masks must be those of this run.

        Raises:
            OutputError: They are not: the journal is of another run.
        """
        for record in journal.records():
            for obj in record["objects"]:
                size = tuple(obj["segmentation"]["size"])
                if obj["id"] not in self._numbers or size != tuple(size_hw):
                    raise OutputError(
                        "the folder holds the frames of another run",
                        got=f"object `{obj['id']}` on frame {record['frame']}",
                        hint="choose another folder with -o",
                    )
            yield record

    def _segments(self, record: dict[str, Any]) -> Iterator[Segment]:
        for obj in record["objects"]:
            if obj["area"]:
                shape = obj["segmentation"]
                yield Segment(
                    run_lengths.from_counts(run_lengths.counts_of(shape), tuple(shape["size"])),
                    label=obj["id"] if isinstance(obj["id"], str) else None,
                    score=obj["score"],
                    object_id=self._numbers[obj["id"]],
                )

    def _write_overlay(self, file: Path, journal: Journal, source: FrameSource) -> None:
        """A video of the frames with their masks, in display order with the source's times."""
        first: float | None = None
        with VideoWriter(file, source.size_hw, rate=source_rate(source)) as video:
            for record in self._fitting(journal, source.size_hw):
                objects = record["objects"]
                masks = [run_lengths.decode(obj["segmentation"]) for obj in objects]
                stack = np.stack(masks) if masks else np.zeros((0, *source.size_hw), np.bool_)
                ids = [self._numbers[obj["id"]] for obj in objects]
                seconds = record["time"]
                first = seconds if first is None else first
                since = None if seconds is None or first is None else seconds - first
                frame = overlay(
                    source.frame(record["frame"]),
                    stack,
                    object_ids=ids,
                    opacity=self._options.opacity,
                )
                video.write(frame, since)


def source_rate(source: FrameSource) -> float:
    """Frames per second of the source, from the times of its first and last frame."""
    last = (source.length or 1) - 1
    try:
        end = source.time(last) if last else None
    except VideoError:
        end = None
    return min(last / end, 1000.0) if end else DEFAULT_RATE

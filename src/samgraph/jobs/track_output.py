"""The files of a tracking run in each of its formats: frame by frame, or all frames at the end.

With one format the files are in the folder of the run, with several each has its own folder.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from samgraph.errors import OutputError
from samgraph.formats.folders import frame_files, write_overlay_video
from samgraph.formats.segment import DEFAULT_LABEL, Segment, SegmentedImage
from samgraph.formats.table import Format, WriteOptions
from samgraph.formats.yolo import write_classes
from samgraph.jobs.journal import Journal
from samgraph.media.files import make_folder, write_atomically
from samgraph.media.mask import rle as run_lengths
from samgraph.media.video.frames import FrameSource
from samgraph.media.video.source import numbered_name
from samgraph.predict.video.export import OVERLAY, frame_rate
from samgraph.predict.video.prompts import ObjectId
from samgraph.predict.video.result import FrameResult


@dataclass(frozen=True, slots=True)
class ObjectNames:
    """The names of objects in files: a number each, from 1 to 255 for palettes, and a label.

    An object whose id is a text has it as its label, unless another is given.
    """

    numbers: Mapping[ObjectId, int]
    labels: Mapping[ObjectId, str] = field(default_factory=dict)

    def label(self, name: ObjectId) -> str | None:
        """The label of an object; None where it has none."""
        return self.labels.get(name, name if isinstance(name, str) else None)

    @property
    def classes(self) -> tuple[str, ...]:
        """Every label once, in the order of objects."""
        return tuple(dict.fromkeys(self.label(name) or DEFAULT_LABEL for name in self.numbers))

    def segments(self, record: dict[str, Any]) -> Iterator[Segment]:
        """The objects of a journal's line; an absent object has no segment."""
        for obj in record["objects"]:
            if obj["area"]:
                shape = obj["segmentation"]
                yield Segment(
                    run_lengths.from_counts(run_lengths.counts_of(shape), tuple(shape["size"])),
                    label=self.label(obj["id"]),
                    score=obj["score"],
                    object_id=self.numbers[obj["id"]],
                )


class TrackOutput:
    """Writes the results of a run."""

    def __init__(
        self, folder: Path, formats: Sequence[Format], names: ObjectNames, options: WriteOptions
    ) -> None:
        self._names = names
        self._options = replace(options, classes=names.classes)
        self._folders = format_folders(folder, formats)
        self._own_folders = [own for own in self._folders.values() if own != folder]
        for leftover in (file for own in self._own_folders for file in own.rglob(".*.part")):
            leftover.unlink(missing_ok=True)  # of a process that was killed while it wrote
        self._per_frame = [format for format in formats if format.video_file is None]
        self._joined = [format for format in formats if format.video_file is not None]

    @property
    def needs_pixels(self) -> bool:
        """Whether `write_frame` needs results that hold their frame."""
        return any(format.needs_pixels for format in self._per_frame)

    def write_frame(self, result: FrameResult) -> None:
        """The files of one frame, each whole or not at all."""
        image = replace(result, numbers=self._names.numbers).segmented_image()
        named = zip(image.segments, map(self._names.label, result.objects), strict=True)
        self.write_image(
            replace(image, segments=tuple(replace(s, label=label) for s, label in named))
        )

    def write_image(self, image: SegmentedImage) -> None:
        """The files of one frame, from its segments."""
        for format in self._per_frame:
            for name, part in frame_files(format, image):
                file = self._folders[format.name] / name
                make_folder(file.parent)
                write_atomically(file, format.encode([part], self._options))

    def finish(self, journal: Journal, source: FrameSource) -> None:
        """The files that hold all frames, from the journal, and the lists of classes."""
        for format in self._joined:
            if format.encoder is None:
                continue
            file = make_folder(self._folders[format.name]) / str(format.video_file)
            if format.name == OVERLAY:
                drawn = self._drawn(journal, source)
                opacity = self._options.opacity
                write_overlay_video(file, drawn, rate=frame_rate(source), opacity=opacity)
            else:
                images = list(self.images(journal, source.size_hw))
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

    def images(self, journal: Journal, size_hw: tuple[int, int]) -> Iterator[SegmentedImage]:
        """Every frame of the journal; an absent object has no segment."""
        for record in self._fitting(journal, size_hw):
            yield record_image(record, size_hw, self._names)

    def _fitting(self, journal: Journal, size_hw: tuple[int, int]) -> Iterator[dict[str, Any]]:
        """The lines of the journal, whose objects and masks must be those of this run.

        Raises:
            OutputError: They are not: the journal is of another run.
        """
        for record in journal.records():
            for obj in record["objects"]:
                size = tuple(obj["segmentation"]["size"])
                if obj["id"] not in self._names.numbers or size != tuple(size_hw):
                    raise OutputError(
                        "the folder holds the frames of another run",
                        got=f"object `{obj['id']}` on frame {record['frame']}",
                        hint="choose another folder with -o",
                    )
            yield record

    def _drawn(
        self, journal: Journal, source: FrameSource
    ) -> Iterator[tuple[SegmentedImage, float | None]]:
        """Every frame of the journal with its pixels and time."""
        for record in self._fitting(journal, source.size_hw):
            image = record_image(record, source.size_hw, self._names)
            yield replace(image, pixels=source.frame(record["frame"])), record["time"]


def record_image(
    record: dict[str, Any], size_hw: tuple[int, int], names: ObjectNames
) -> SegmentedImage:
    """The frame of a journal's line; an absent object has no segment."""
    name = record.get("name") or numbered_name(record["frame"])
    return SegmentedImage(name, size_hw, tuple(names.segments(record)), index=record["frame"])


def format_folders(folder: Path, formats: Sequence[Format]) -> dict[str, Path]:
    """The folder of each format: that of the run for one, a folder each for several."""
    single = len(formats) == 1
    return {format.name: folder if single else folder / format.name for format in formats}


def free_numbers(names: Iterable[ObjectId]) -> dict[ObjectId, int]:
    """A number for each object: its id, or for a text the next that is no object's id."""
    known = list(dict.fromkeys(names))
    taken = {name for name in known if isinstance(name, int)}
    free = (number for number in range(1, 2 * len(known) + 1) if number not in taken)
    return {name: name if isinstance(name, int) else next(free) for name in known}

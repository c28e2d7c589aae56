"""Which files a tracking run wrote, from its record and its journal."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from samgraph.errors import OutputError
from samgraph.formats.folders import frame_files
from samgraph.formats.segment import Segment, SegmentedImage
from samgraph.formats.table import FORMATS, Format
from samgraph.jobs.journal import Journal
from samgraph.jobs.track_output import format_folders
from samgraph.media.mask.rle import Rle
from samgraph.media.video.source import numbered_name

_NO_MASK: Rle = {"size": [1, 1], "counts": b"1"}


def run_files(folder: Path, run: Mapping[str, Any], frames: Iterable[str]) -> list[Path]:
    """The files of a run's formats that exist, in the order of formats and frames.

    Args:
        folder: The folder of the run.
        run: The content of `run.json`; what is not valid there is ignored.
        frames: The names of its frames.
    """
    named, objects = run.get("formats"), run.get("objects")
    names = named if isinstance(named, list) else []
    numbers = list(objects.values()) if isinstance(objects, dict) else []
    segments = [Segment(_NO_MASK, object_id=n) for n in numbers if isinstance(n, int)]
    formats = [FORMATS[name] for name in names if isinstance(name, str) and name in FORMATS]
    frames = list(frames)
    found: list[Path] = []
    for name, own in format_folders(folder, formats).items():
        files = _file_names(FORMATS[name], frames, tuple(segments))
        found += [file for file in dict.fromkeys(own / file for file in files) if file.is_file()]
    return found


def frame_names(records: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """The names of frames in a journal."""
    for record in records:
        yield record.get("name") or numbered_name(record["frame"])


def with_objects(run: Mapping[str, Any], journal: Journal) -> dict[str, Any]:
    """The content of `run.json`, with the objects that were found, where nothing was prompted."""
    if "everything" not in run:
        return dict(run)
    found = {obj["id"] for record in journal.records() for obj in record["objects"]}
    numbers = sorted(number for number in found if isinstance(number, int))
    return {**run, "objects": {str(number): number for number in numbers}}


def remove_files(folder: Path, files: Iterable[Path]) -> None:
    """Remove files below a folder, and the folders that are empty then, but not the folder."""
    parents = set()
    for file in files:
        with suppress(FileNotFoundError):
            file.unlink()
        parents |= {parent for parent in file.parents if parent.is_relative_to(folder)} - {folder}
    for parent in sorted(parents, key=lambda path: -len(path.parts)):
        with suppress(OSError):  # not empty
            parent.rmdir()


def _file_names(format: Format, frames: list[str], segments: tuple[Segment, ...]) -> Iterator[str]:
    """The names that files of a format may have, below its folder."""
    if format.video_file is not None:
        yield format.video_file
        return
    for name in frames:
        with suppress(OutputError):  # a name that no file can have
            image = SegmentedImage(name, (1, 1), segments)
            yield from (str(file) for file, _ in frame_files(format, image))
    if format.class_file is not None:
        yield format.class_file

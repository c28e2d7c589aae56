"""Masks from one format to another, with no model: of a tracking run, or of annotation files."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from samgraph import formats
from samgraph.errors import ImageError, OutputError
from samgraph.formats.folders import write_frames, write_overlay_video
from samgraph.formats.reading import read_images
from samgraph.formats.segment import SegmentedImage
from samgraph.formats.table import Format, WriteOptions, find_format
from samgraph.jobs.journal import JOURNAL, ordered_records, read_run
from samgraph.jobs.track_output import ObjectNames, free_numbers, record_image
from samgraph.media.files import make_folder, write_atomically
from samgraph.media.image.reading import read_image
from samgraph.media.video.frames import FrameSource, open_frames
from samgraph.predict.video.export import OVERLAY, frame_rate, video_format
from samgraph.predict.video.prompts import ObjectId
from samgraph.untrusted.files import open_regular

JOURNAL_SUFFIX = ".jsonl"


@dataclass(frozen=True, slots=True)
class ConvertJob:
    """What is converted, and into what.

    Args:
        source: `frames.jsonl` of a tracking run or its folder, or what `read_images` takes.
        out: A folder, or a file where the format has one for all images.
        format: A name of the table in `samgraph.formats`; if omitted, what `out` implies.
        images: The video, or the folder of images, for formats that show them.
        write: What the formats leave open.
    """

    source: str
    out: str
    format: str | None = None
    images: str | None = None
    write: WriteOptions = field(default_factory=WriteOptions)


def run_convert(job: ConvertJob) -> list[Path]:
    """Convert; returns the files written.

    Raises:
        ImageError: The source cannot be read.
        OutputError: The files cannot be written, or the format needs images that are not given.
    """
    format, journal = _format_of(job), _journal(job.source)
    if journal is None:
        return _write_images(job, format)
    with ExitStack() as stack:
        video = None
        if job.images is not None:
            video = stack.enter_context(open_frames(job.images))
        return _write_frames(job, format, journal, video)


def convert_all(job: ConvertJob, names: Sequence[str]) -> list[Path]:
    """Convert into several formats, each in a folder of `out`; returns the files written.

    Raises:
        ImageError: The source cannot be read.
        OutputError: `out` is a file, or a format needs images that are not given.
    """
    if Path(job.out).suffix:
        raise OutputError(
            "several formats need a folder", got=f"`{job.out}`", hint="name one: `-o out/`"
        )
    jobs = [replace(job, format=n, out=str(Path(job.out) / n)) for n in dict.fromkeys(names)]
    for one in jobs:
        _format_of(one)
    return [file for one in jobs for file in run_convert(one)]


def _format_of(job: ConvertJob) -> Format:
    """The format that is written, where it can be."""
    format = video_format(job.out) if job.format is None else find_format(job.format)
    if format.encoder is None:
        raise OutputError(
            f"nothing is converted into {format.name}", hint="choose another --format"
        )
    if format.needs_pixels and job.images is None:
        raise OutputError(
            f"{format.name} shows the images themselves",
            hint="say where they are: --images VIDEO or --images FOLDER",
        )
    return format


def journal_frames(path: Path) -> Iterator[tuple[dict[str, Any], SegmentedImage]]:
    """Every frame of a journal, with its line and its objects, whose numbers are those of the run.

    Raises:
        ImageError: The journal is missing, or has no frame, or none with an object.
    """
    try:
        file = open_regular(path)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ImageError(f"`{path}` cannot be read", got=str(reason).lower()) from error
    with closing(file):
        ids: dict[ObjectId, None] = {}
        sizes: dict[tuple[int, int], None] = {}
        for record in ordered_records(file):
            for obj in record["objects"]:
                ids[obj["id"]] = None
                sizes[tuple(obj["segmentation"]["size"])] = None
        if len(sizes) != 1:
            got = "no object on any frame" if not sizes else f"masks of {len(sizes)} sizes"
            raise ImageError(f"`{path}` is not a journal of a tracking run", got=got)
        size_hw = next(iter(sizes))
        names = _names(read_run(path.parent), list(ids))
        for record in ordered_records(file):
            yield record, record_image(record, size_hw, names)


def _journal(source: str) -> Path | None:
    """The journal that is to be converted; None for other files."""
    path = Path(source)
    if path.is_dir() and (path / JOURNAL).is_file():
        return path / JOURNAL
    return path if path.suffix.lower() == JOURNAL_SUFFIX else None


def _names(run: Mapping[str, Any], ids: Sequence[ObjectId]) -> ObjectNames:
    """The numbers and labels that `run.json` gives objects, where it does."""
    given, labels = run.get("objects"), run.get("labels")
    numbers = free_numbers(ids)
    if isinstance(given, dict) and all(isinstance(given.get(str(i)), int) for i in ids):
        numbers = {name: int(given[str(name)]) for name in ids}
    if not isinstance(labels, dict):
        return ObjectNames(numbers)
    named = {name: labels.get(str(name)) for name in ids}
    return ObjectNames(numbers, {n: label for n, label in named.items() if isinstance(label, str)})


def _write_frames(
    job: ConvertJob, format: Format, journal: Path, video: FrameSource | None
) -> list[Path]:
    def images() -> Iterator[tuple[SegmentedImage, float | None]]:
        for record, image in journal_frames(journal):
            if video is not None and format.needs_pixels:
                image = replace(image, pixels=_fitting(video, record["frame"], image))
            yield image, record["time"]

    target = Path(job.out)
    if format.name == OVERLAY:
        if not target.suffix:
            target = make_folder(target) / str(format.video_file)
        rate = 25.0 if video is None else frame_rate(video)
        return [write_overlay_video(target, images(), rate=rate, opacity=job.write.opacity)]
    frames = (image for image, _ in images())
    if format.video_file is None or not target.suffix:
        return write_frames(format, target, frames, job.write)
    write_atomically(target, format.encode(list(frames), job.write, target.suffix.lower()))
    return [target]


def _fitting(video: FrameSource, index: int, image: SegmentedImage) -> Any:
    if video.size_hw != image.size_hw:
        height, width = image.size_hw
        raise ImageError(
            f"the masks are not those of `{video.name}`",
            got=f"frames of {video.size_hw[1]} x {video.size_hw[0]}",
            expected=f"{width} x {height}",
        )
    return video.frame(index)


def _write_images(job: ConvertJob, format: Format) -> list[Path]:
    images = read_images(job.source)
    if format.needs_pixels and job.images is not None:
        images = [_with_pixels(image, job.images) for image in images]
    target = Path(job.out)
    if target.suffix and format.file is not None:
        write_atomically(target, format.encode(images, job.write, target.suffix.lower()))
        return [target]
    if not format.for_images:
        return write_frames(format, target, images, job.write)
    return formats.write(format.name, make_folder(target), images, job.write)


def _with_pixels(image: SegmentedImage, folder: str) -> SegmentedImage:
    pixels = read_image(os.path.join(folder, Path(image.name).name))
    if pixels.shape[:2] != image.size_hw:
        height, width = image.size_hw
        raise ImageError(
            f"the masks are not those of `{image.name}`",
            got=f"an image of {pixels.shape[1]} x {pixels.shape[0]}",
            expected=f"{width} x {height}",
        )
    return replace(image, pixels=pixels)

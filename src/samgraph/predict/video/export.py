"""A tracked video as files: a video with the masks drawn in, or any format of the table."""

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from samgraph.errors import OutputError, VideoError
from samgraph.formats.folders import write_frames, write_overlay_video
from samgraph.formats.segment import SegmentedImage
from samgraph.formats.table import FORMATS, Format, WriteOptions, find_format
from samgraph.media.files import make_folder, write_atomically
from samgraph.media.video.source import FrameSource
from samgraph.media.video.writer import FORMATS as VIDEO_SUFFIXES
from samgraph.predict.video.result import FrameResult

if TYPE_CHECKING:
    from samgraph.predict.video.video import Video

DEFAULT_RATE = 25.0
OVERLAY = "overlay"
Frame = tuple[SegmentedImage, float | None]
Known = tuple[int, SegmentedImage, float | None]  # with the index of the frame


def export_video(
    video: "Video",
    path: str | os.PathLike[str],
    format: str | Sequence[str] | None,
    results: Iterable[FrameResult],
    options: WriteOptions,
    *,
    is_ordered: bool,
) -> list[Path]:
    """Write results as they come, or where they are not in the order of frames, sorted.

    With several formats each has a folder, and masks are kept, run-length encoded, until the end.
    """
    found: Iterable[Known] = ((result.index, _visible(result), result.time) for result in results)
    if format is None or isinstance(format, str):
        chosen = video_format(path, format)
        ordered = found if is_ordered else sorted(found, key=lambda item: item[0])
        return _write(video.source, Path(path), chosen, ordered, options)
    targets = _folders(path, format)
    known = sorted(found, key=lambda item: item[0])
    written = (_write(video.source, path, f, known, options) for path, f in targets.items())
    return [file for files in written for file in files]


def _folders(path: str | os.PathLike[str], formats: Sequence[str]) -> dict[Path, Format]:
    """Where each of several formats is written: a folder, or in it the video of an overlay."""
    if not formats:
        raise OutputError("there is no format to write", expected="a name, or a list of names")
    if Path(path).suffix:
        raise OutputError(
            "several formats need a folder", got=f"`{path}`", expected="a path without a suffix"
        )
    targets = {}
    for name in dict.fromkeys(formats):
        file = FORMATS[OVERLAY].video_file if name == OVERLAY else None
        target = Path(path) / name / (file or "")
        targets[target] = video_format(target, name)
    return targets


def _write(
    source: FrameSource, target: Path, chosen: Format, found: Iterable[Known], options: WriteOptions
) -> list[Path]:
    """Write frames in one format."""
    frames = _frames(source, found, chosen)
    if chosen.name == OVERLAY:
        make_folder(target.parent)
        rate = frame_rate(source)
        return [write_overlay_video(target, frames, rate=rate, opacity=options.opacity)]
    images = (image for image, _ in frames)
    if chosen.video_file is None or not target.suffix:
        return write_frames(chosen, target, images, options)
    make_folder(target.parent)
    write_atomically(target, chosen.encode(list(images), options, target.suffix.lower()))
    return [target]


def video_format(path: str | os.PathLike[str], name: str | None = None) -> Format:
    """The format to write a tracked video in: the named one, or what the suffix implies.

    Raises:
        OptionError: There is no such format.
        OutputError: The path does not say what to write, or cannot hold the named format.
    """
    suffix = Path(path).suffix.lower()
    found = find_format(name) if name is not None else None
    if found is None and suffix in VIDEO_SUFFIXES:
        found = FORMATS[OVERLAY]
    if found is None:
        joined = [entry for entry in FORMATS.values() if entry.video_file and entry.encoder]
        found = next((entry for entry in joined if suffix and suffix in entry.implied_by), None)
    if found is None or (found.name == OVERLAY and suffix not in VIDEO_SUFFIXES):
        raise OutputError(
            f"`{path}` does not say what to write",
            got=suffix or "no suffix",
            expected=f"{', '.join(VIDEO_SUFFIXES)}, .json or .xml, or a folder and `format`",
        )
    if found.encoder is None:
        raise OutputError(
            f"{found.name} is not written from Python", hint="`samgraph track` writes it"
        )
    is_file = found.name == OVERLAY or found.video_file is not None
    if suffix and is_file and found.name != OVERLAY and suffix not in found.suffixes:
        expected = f"{', '.join(found.suffixes)}, or a folder"
        raise OutputError(f"`{path}` cannot hold the format {found.name}", expected=expected)
    return found


def frame_rate(source: FrameSource) -> float:
    """Frames per second of a source, from the times of its first and last frame; else 25."""
    last = (source.length or 1) - 1
    try:
        end = source.time(last) if last else None
    except VideoError:
        end = None
    return min(last / end, 1000.0) if end else DEFAULT_RATE


def _frames(source: FrameSource, found: Iterable[Known], format: Format) -> Iterator[Frame]:
    """Frames with their visible objects, and with pixels where the format needs them."""
    for index, image, time in found:
        pixels = source.frame(index) if format.needs_pixels else None
        yield replace(image, pixels=pixels), time


def _visible(result: FrameResult) -> SegmentedImage:
    return result.segmented_image(all=False)

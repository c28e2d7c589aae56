"""The frames of a video as files in a folder: a file per frame, per object and frame, or for all.

    write_frames(find_format("davis"), "out", frames)

Frames are named after their files (`cat.jpg` gives `cat.png`) or numbered (`00012.png`).
"""

import os
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path, PurePath

import numpy as np

from samgraph.errors import OutputError
from samgraph.formats.pictures import OPACITY, draw_segments, segment_number
from samgraph.formats.segment import SegmentedImage, file_stem, labels_of
from samgraph.formats.table import Format, WriteOptions
from samgraph.formats.yolo import write_classes
from samgraph.media.files import make_folder, write_atomically
from samgraph.media.video.writer import VideoWriter


def frame_files(format: Format, image: SegmentedImage) -> Iterator[tuple[PurePath, SegmentedImage]]:
    """The files of a frame below the format's folder, each with what it holds.

    Raises:
        OutputError: The frame's name cannot be that of a file.
    """
    stem, suffix = file_stem(image.name), format.suffixes[0]
    if not format.has_file_per_mask:
        yield PurePath(f"{stem}{suffix}"), image
        return
    for index, segment in enumerate(image.segments):
        number, part = segment_number(segment, index), replace(image, segments=(segment,))
        if format.has_object_folders:
            yield PurePath(f"{number:03d}", f"{stem}{suffix}"), part
        else:
            yield PurePath(f"{stem}_{number}{suffix}"), part


def write_frames(
    format: Format,
    folder: str | os.PathLike[str],
    frames: Iterable[SegmentedImage],
    options: WriteOptions | None = None,
) -> list[Path]:
    """Write frames into a folder, which is made; returns the files.

    Frames are written as they come where the format has a file for each.

    Raises:
        OutputError: A file cannot be written, or two frames would have the same file.
    """
    options, into = options or WriteOptions(), make_folder(Path(folder))
    if format.video_file is not None:
        file = into / format.video_file
        write_atomically(file, format.encode(list(frames), options))
        return [file]
    if format.class_file is not None:
        frames = list(frames)
        classes = tuple(labels_of(frame.labelled(options.label) for frame in frames))
        options = replace(options, classes=classes if options.classes is None else options.classes)
    written: dict[Path, str] = {}
    for frame in frames:
        for path, part in frame_files(format, frame):
            if into / path in written:
                raise OutputError(
                    f"`{into / path}` holds the masks of another frame", got=frame.name
                )
            make_folder((into / path).parent)
            write_atomically(into / path, format.encode([part], options))
            written[into / path] = frame.name
    if format.class_file is not None:
        write_classes(into / format.class_file, options.classes or ())
        return [*written, into / format.class_file]
    return list(written)


def write_overlay_video(
    file: str | os.PathLike[str],
    frames: Iterable[tuple[SegmentedImage, float | None]],
    *,
    rate: float,
    opacity: float = OPACITY,
) -> Path:
    """Write a video of frames with their masks, in the order given; times are in seconds.

    Raises:
        OutputError: The file cannot be written, or there is no frame.
        VideoError: PyAV is missing.
    """
    video: VideoWriter | None = None
    first: float | None = None
    try:
        for frame, seconds in frames:
            video = video or VideoWriter(file, frame.size_hw, rate=rate)
            first = seconds if first is None else first
            since = None if seconds is None or first is None else seconds - first
            drawn = draw_segments(frame.need_pixels(), frame.segments, opacity)
            video.write(np.asarray(drawn, np.uint8), since)
    except BaseException:
        if video is not None:
            video.abandon()
        raise
    if video is None:
        raise OutputError(f"there is no frame to write to `{file}`")
    video.close()
    return Path(file)

"""DAVIS and YouTube-VOS masks: a palette PNG per frame, whose pixel values are object ids.

Frame 12 of a video is `00012.png`; 0 is background. A pixel holds one object: where masks overlap,
the lowest id is on top, as in the reference's DAVIS output.
"""

import os
import re
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from samgraph.errors import ImageError
from samgraph.formats.pictures import davis_bytes
from samgraph.formats.records import Effort
from samgraph.formats.segment import Segment, SegmentedImage, file_stems
from samgraph.media.files import write_atomically
from samgraph.media.image.reading import read_label_image
from samgraph.untrusted.text import shown


def write_davis(folder: str | os.PathLike[str], frames: Iterable[SegmentedImage]) -> None:
    """Write a palette PNG per frame, named after the frame."""
    frames = list(frames)
    for stem, frame in zip(file_stems(frames), frames, strict=True):
        write_davis_frame(Path(folder) / f"{stem}.png", frame)


def write_davis_frame(path: str | os.PathLike[str], frame: SegmentedImage) -> None:
    """Write one frame.

    Raises:
        OutputError: The file cannot be written, or an object's id is not within 1 to 255.
    """
    write_atomically(path, davis_bytes(frame))


def read_davis_frame(path: str | os.PathLike[str]) -> SegmentedImage:
    """The objects of one palette PNG, by id."""
    labels = read_label_image(path)
    height, width = labels.shape
    found = [number for number in np.unique(labels).tolist() if number != 0]
    Effort(path).spend(labels.size * len(found))
    segments = tuple(
        Segment.from_mask(labels == object_id, object_id=object_id) for object_id in found
    )
    return SegmentedImage(Path(path).name, (height, width), segments)


def read_davis(folder: str | os.PathLike[str]) -> list[SegmentedImage]:
    """All frames in a folder, ordered by the numbers in their names.

    Raises:
        ImageError: There is no PNG in the folder, or one of them is damaged.
    """
    try:
        paths = sorted(Path(folder).glob("*.png"), key=_frame_order)
    except (OSError, ValueError) as error:  # a name that no folder can have
        raise ImageError(f"`{shown(os.fspath(folder))}` cannot be read") from error
    if not paths:
        raise ImageError(f"`{folder}` has no masks", expected="files such as `00000.png`")
    return [read_davis_frame(path) for path in paths]


def _frame_order(path: Path) -> tuple[int, str]:
    digits = re.findall(r"\d{1,18}", path.stem)
    return (int(digits[-1]) if digits else -1), path.name

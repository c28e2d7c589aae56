"""YOLO segmentation labels: a text file per image, a line per object.

    <class number> x1 y1 x2 y2 ...        each in 0..1 of the image's width and height

A line is one ring: the parts and holes of an object are joined by slits of zero width. The class
names are in `classes.txt`, one per line.
"""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from samgraph.errors import ImageError, OutputError
from samgraph.formats.records import Effort, corners, read_text
from samgraph.formats.segment import (
    DEFAULT_LABEL,
    Segment,
    SegmentedImage,
    file_stems,
    labels_of,
)
from samgraph.media.files import write_atomically
from samgraph.media.mask.polygons import join_rings, mask_to_polygons, polygons_to_rle

CLASS_FILE = "classes.txt"


def write_yolo(
    folder: str | os.PathLike[str],
    images: Iterable[SegmentedImage],
    *,
    classes: Sequence[str] | None = None,
    tolerance: float = 0.0,
) -> None:
    """Write a label file per image, named after the image, and the list of classes.

    Raises:
        OutputError: A file cannot be written, or a label is not among the given classes.
    """
    images = list(images)
    names = list(classes) if classes is not None else labels_of(images)
    for stem, image in zip(file_stems(images), images, strict=True):
        lines = "".join(f"{line}\n" for line in yolo_lines(image, names, tolerance=tolerance))
        write_atomically(Path(folder) / f"{stem}.txt", lines.encode("ascii"))
    write_classes(Path(folder) / CLASS_FILE, names)


def write_classes(path: str | os.PathLike[str], names: Sequence[str]) -> None:
    """Write the class names, one per line; the first is class 0."""
    listed = "".join(f"{' '.join(name.split())}\n" for name in names)
    write_atomically(path, listed.encode("utf-8", "backslashreplace"))


def add_classes(path: str | os.PathLike[str], images: Iterable[SegmentedImage]) -> tuple[str, ...]:
    """Add the labels of images to a file of class names, after those in it; returns all names.

    Raises:
        ImageError: The file cannot be read.
        OutputError: It cannot be written.
    """
    names = read_text(path).splitlines() if Path(path).is_file() else []
    more = [label for label in labels_of(images) if label not in names]
    if more:
        write_classes(path, [*names, *more])
    return (*names, *more)


def yolo_lines(
    image: SegmentedImage, classes: Sequence[str], *, tolerance: float = 0.0
) -> list[str]:
    """The lines of one label file; an empty mask has none."""
    height, width = image.size_hw
    number = {name: index for index, name in enumerate(classes)}
    lines = []
    for segment in image.segments:
        label = segment.label or DEFAULT_LABEL
        if label not in number:
            raise OutputError(
                f"`{label}` is not one of the classes", expected=", ".join(classes)[:200]
            )
        outlines = mask_to_polygons(segment.mask, tolerance)
        rings = [ring for outline in outlines for ring in outline.rings]
        if rings:
            shares = (join_rings(rings) / (width, height)).ravel()
            lines.append(" ".join([str(number[label]), *(f"{share:.6g}" for share in shares)]))
    return lines


def read_yolo(
    path: str | os.PathLike[str], size_hw: tuple[int, int], classes: Sequence[str] | None = None
) -> SegmentedImage:
    """The segments of one label file, for an image of the given size.

    Without `classes`, the `classes.txt` beside the file is used, or else the bare numbers.

    Raises:
        ImageError: The file is missing, or a line in it is not a class and a ring.
    """
    where, effort = f"`{path}`", Effort(path)
    beside = Path(path).parent / CLASS_FILE
    if classes is None:
        classes = read_text(beside).splitlines() if os.path.isfile(beside) else []
    segments = []
    for line in read_text(path).splitlines():
        words = line.split()
        if not words:
            continue
        if not words[0].isdecimal() or len(words) % 2 == 0:
            raise ImageError(f"{where} has a line that is not a class and a ring", got=line[:60])
        ring = corners(words[1:], where) * np.array([size_hw[1], size_hw[0]])
        index = int(words[0][:9])
        label = classes[index] if index < len(classes) else str(index)
        segments.append(Segment(polygons_to_rle([ring], size_hw, effort.spend), label=label))
    return SegmentedImage(Path(path).stem, size_hw, tuple(segments))

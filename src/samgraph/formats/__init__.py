"""Segments in the formats of other tools, one file per format.

`FORMATS` is the table of what can be written; `write` puts images into a folder in one of them. The
modules have readers, options, and functions that return the content of files.
"""

import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from samgraph.formats.coco import coco_document, read_coco, write_coco
from samgraph.formats.cvat import cvat_points, read_cvat, write_cvat
from samgraph.formats.davis import read_davis, read_davis_frame, write_davis, write_davis_frame
from samgraph.formats.label_studio import read_label_studio, write_label_studio
from samgraph.formats.labelme import read_labelme, write_labelme
from samgraph.formats.sam import from_sam_dicts, to_sam_dicts, write_sam
from samgraph.formats.segment import Segment, SegmentedImage, file_stems, label_image, labels_of
from samgraph.formats.table import (
    FORMATS,
    IMAGE_FORMATS,
    Format,
    ImageFormat,
    WriteOptions,
    find_format,
    format_for,
)
from samgraph.formats.tracks import read_mots
from samgraph.formats.yolo import read_yolo, write_classes, write_yolo
from samgraph.media.files import write_atomically

__all__ = [
    "FORMATS",
    "IMAGE_FORMATS",
    "Format",
    "ImageFormat",
    "Segment",
    "SegmentedImage",
    "WriteOptions",
    "coco_document",
    "cvat_points",
    "find_format",
    "format_for",
    "from_sam_dicts",
    "label_image",
    "read_coco",
    "read_cvat",
    "read_davis",
    "read_davis_frame",
    "read_label_studio",
    "read_labelme",
    "read_mots",
    "read_yolo",
    "to_sam_dicts",
    "write",
    "write_coco",
    "write_cvat",
    "write_davis",
    "write_davis_frame",
    "write_label_studio",
    "write_labelme",
    "write_sam",
    "write_yolo",
]


def write(
    name: str,
    folder: str | os.PathLike[str],
    images: Iterable[SegmentedImage],
    options: WriteOptions | None = None,
) -> list[Path]:
    """Write images in the named format into a folder that exists; returns the files.

    Raises:
        OptionError: There is no such format.
        OutputError: A file cannot be written, or two images would have the same file.
    """
    chosen, images, into = find_format(name), list(images), Path(folder)
    if chosen.file is not None:
        write_atomically(into / chosen.file, chosen.encode(images, options))
        return [into / chosen.file]
    options = options or WriteOptions()
    labels = tuple(labels_of(image.labelled(options.label) for image in images))
    options = replace(options, classes=labels if options.classes is None else options.classes)
    written = []
    for stem, image in zip(file_stems(images), images, strict=True):
        written.append(into / f"{stem}{chosen.suffixes[0]}")
        write_atomically(written[-1], chosen.encode([image], options))
    if chosen.class_file is not None:
        written.append(into / chosen.class_file)
        write_classes(written[-1], options.classes or ())
    return written

"""Segments in the formats of other tools, one file a format.

`write` is the one door for a command line: it takes the name of a format and a folder. Everything
else is in the modules: readers, options, and the same content as values instead of files.
"""

import os
from collections.abc import Callable, Iterable
from pathlib import Path

from samgraph.errors import OptionError
from samgraph.formats.coco import coco_document, read_coco, write_coco
from samgraph.formats.cvat import cvat_points, read_cvat, write_cvat
from samgraph.formats.davis import read_davis, read_davis_frame, write_davis, write_davis_frame
from samgraph.formats.label_studio import read_label_studio, write_label_studio
from samgraph.formats.labelme import read_labelme, write_labelme
from samgraph.formats.sam import from_sam_dicts, to_sam_dicts, write_sam
from samgraph.formats.segment import Segment, SegmentedImage, label_image
from samgraph.formats.yolo import read_yolo, write_yolo

__all__ = [
    "FORMATS",
    "Segment",
    "SegmentedImage",
    "coco_document",
    "cvat_points",
    "from_sam_dicts",
    "label_image",
    "read_coco",
    "read_cvat",
    "read_davis",
    "read_davis_frame",
    "read_label_studio",
    "read_labelme",
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

Writer = Callable[[Path, Iterable[SegmentedImage]], None]

# The name of a format, its writer, and the file it writes to; none where it writes many.
FORMATS: dict[str, tuple[Writer, str]] = {
    "coco": (write_coco, "annotations.json"),
    "cvat": (write_cvat, "annotations.xml"),
    "davis": (write_davis, ""),
    "label-studio": (write_label_studio, "tasks.json"),
    "labelme": (write_labelme, ""),
    "sam": (write_sam, "masks.json"),
    "yolo": (write_yolo, ""),
}


def write(kind: str, folder: str | os.PathLike[str], images: Iterable[SegmentedImage]) -> Path:
    """Write images in the named format into a folder that exists; returns what was written to."""
    if kind not in FORMATS:
        raise OptionError(f"unknown format `{kind}`", expected=", ".join(FORMATS))
    writer, name = FORMATS[kind]
    target = Path(folder) / name
    writer(target, images)
    return target

"""Masks from files of any format that is read: COCO, CVAT, Label Studio, labelme, MOTS, DAVIS."""

import os
from collections.abc import Mapping
from pathlib import Path

from samgraph.errors import ImageError
from samgraph.formats.coco import read_coco
from samgraph.formats.cvat import read_cvat
from samgraph.formats.davis import read_davis
from samgraph.formats.label_studio import read_label_studio
from samgraph.formats.labelme import read_labelme
from samgraph.formats.records import read_json
from samgraph.formats.segment import SegmentedImage
from samgraph.formats.tracks import read_mots


def read_images(path: str | os.PathLike[str]) -> list[SegmentedImage]:
    """The images of a file, or of a folder of palette PNGs, with their masks.

    Raises:
        ImageError: It is missing, damaged, or of a format that is not read.
    """
    if Path(path).is_dir():
        return read_davis(path)
    suffix = Path(path).suffix.lower()
    if suffix == ".xml":
        return read_cvat(path)
    if suffix == ".json":
        found = read_json(path)
        if isinstance(found, list):
            return read_label_studio(path)
        if isinstance(found, Mapping) and "shapes" in found:
            return [read_labelme(path)]
        return read_coco(path)
    if suffix == ".txt":
        return read_mots(path)
    raise ImageError(
        f"masks cannot be read from `{path}`",
        got=suffix or "no suffix",
        expected="frames.jsonl of a tracking run, .json (COCO, Label Studio, labelme), .xml (CVAT)"
        ", .txt (MOTS), or a folder of DAVIS masks",
    )

"""CVAT for images 1.1: one XML file for many images.

    <annotations>
      <version>1.1</version>
      <image id="0" name="cat.jpg" width="640" height="480">
        <mask label="cat" source="auto" occluded="0" rle="2, 3, 4" left="10" top="20"
              width="3" height="3" z_order="0" />
      </image>
    </annotations>

The runs cover the crop within the box, row by row, background first. (CVAT's API has `left, top,
right, bottom` with the last pixel included; `cvat_points` gives that.)
"""

import math
import os
import re
from collections.abc import Iterable, Sequence
from xml.etree import ElementTree

import numpy as np
from numpy.typing import NDArray

from samgraph.errors import ImageError
from samgraph.formats.records import Effort, check_size, corners, read_text
from samgraph.formats.segment import DEFAULT_LABEL, Segment, SegmentedImage
from samgraph.media.files import write_atomically
from samgraph.media.mask import rle as run_lengths
from samgraph.media.mask.polygons import join_rings, mask_to_polygons, polygons_to_rle
from samgraph.media.mask.rle import Rle

NOT_IN_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def write_cvat(
    path: str | os.PathLike[str],
    images: Iterable[SegmentedImage],
    *,
    polygons: bool = False,
    tolerance: float = 0.0,
) -> None:
    """Write one annotation file for all the images."""
    write_atomically(path, cvat_document(images, polygons=polygons, tolerance=tolerance))


def cvat_document(
    images: Iterable[SegmentedImage], *, polygons: bool = False, tolerance: float = 0.0
) -> bytes:
    """The annotation file as UTF-8 XML."""
    root = ElementTree.Element("annotations")
    ElementTree.SubElement(root, "version").text = "1.1"
    for index, image in enumerate(images):
        height, width = image.size_hw
        size = {"width": str(width), "height": str(height)}
        name = _clean(image.name)
        element = ElementTree.SubElement(root, "image", {"id": str(index), "name": name, **size})
        for segment in image.segments:
            if segment.area:
                _add_shapes(element, segment, polygons, tolerance)
    ElementTree.indent(root)
    data: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return data


def read_cvat(path: str | os.PathLike[str]) -> list[SegmentedImage]:
    """The masks and polygons of an annotation file; other shapes are ignored.

    Raises:
        ImageError: The file is missing, is not CVAT's, or a shape in it is damaged.
    """
    where, effort = f"`{path}`", Effort(path)
    images = []
    for element in _parse(read_text(path), where).iter("image"):
        height, width = (_number(element, key, where) for key in ("height", "width"))
        size_hw = check_size(height, width, where)
        segments = tuple(
            _read_shape(shape, size_hw, where, effort)
            for shape in element
            if shape.tag in ("mask", "polygon")
        )
        images.append(SegmentedImage(element.get("name", ""), size_hw, segments))
    return images


def cvat_points(segment: Segment) -> list[int]:
    """A mask as CVAT's API takes it: the runs of the crop, then left, top, right, bottom."""
    left, top, width, height = run_lengths.to_bbox(segment.rle)
    runs = _row_runs(segment.mask[top : top + height, left : left + width])
    return [*runs, left, top, left + width - 1, top + height - 1]


def cvat_mask(points: Sequence[float], size_hw: tuple[int, int]) -> NDArray[np.bool_]:
    """The mask [H, W] that CVAT's API gives as `cvat_points`.

    Raises:
        ImageError: The runs are damaged, or reach out of the image.
    """
    if len(points) < 5 or not all(math.isfinite(value) for value in points):
        raise ImageError("a mask of CVAT is made of runs and the four numbers of its box")
    *runs, left, top, right, bottom = map(int, points)
    if not (0 <= left <= right < size_hw[1] and 0 <= top <= bottom < size_hw[0]):
        raise ImageError("a mask reaches out of its image")
    size = [right - left + 1, bottom - top + 1]
    crop = run_lengths.decode({"size": size, "counts": runs}).T
    mask = np.zeros(size_hw, np.bool_)
    mask[top : bottom + 1, left : right + 1] = crop
    return mask


def _add_shapes(
    parent: ElementTree.Element, segment: Segment, polygons: bool, tolerance: float
) -> None:
    common = {"label": _clean(segment.label or DEFAULT_LABEL), "source": "auto", "occluded": "0"}
    group = {} if segment.object_id is None else {"group_id": str(segment.object_id)}
    if polygons:
        for outline in mask_to_polygons(segment.mask, tolerance):
            points = ";".join(f"{x:.2f},{y:.2f}" for x, y in join_rings(outline.rings))
            shape = {**common, "points": points, "z_order": "0", **group}
            ElementTree.SubElement(parent, "polygon", shape)
        return
    *runs, left, top, right, bottom = cvat_points(segment)
    box = {"left": left, "top": top, "width": right - left + 1, "height": bottom - top + 1}
    shape = {**common, "rle": ", ".join(map(str, runs)), **{k: str(v) for k, v in box.items()}}
    ElementTree.SubElement(parent, "mask", {**shape, "z_order": "0", **group})


def _row_runs(crop: NDArray[np.bool_]) -> list[int]:
    """Runs row by row, background first: the column-wise runs of the transposed crop."""
    return run_lengths.uncompressed(run_lengths.encode(np.ascontiguousarray(crop.T)))["counts"]


def _read_shape(
    shape: ElementTree.Element, size_hw: tuple[int, int], where: str, effort: Effort
) -> Segment:
    if shape.tag == "mask":
        encoded = _read_mask(shape, size_hw, where, effort)
    else:
        pairs = [pair.split(",") for pair in shape.get("points", "").split(";")]
        encoded = polygons_to_rle([corners(pairs, where)], size_hw, effort.spend)
    group = _number(shape, "group_id", where) if "group_id" in shape.attrib else None
    return Segment(encoded, label=shape.get("label"), object_id=group)


def _read_mask(
    shape: ElementTree.Element, size_hw: tuple[int, int], where: str, effort: Effort
) -> Rle:
    left, top, width, height = (
        _number(shape, key, where) for key in ("left", "top", "width", "height")
    )
    inside = 0 <= left < left + width <= size_hw[1] and 0 <= top < top + height <= size_hw[0]
    if not inside:
        raise ImageError(f"{where} has a mask that reaches out of its image")
    try:
        runs = [int(run) for run in shape.get("rle", "").split(",")]
    except ValueError as error:
        raise ImageError(f"{where} has a mask whose runs are not numbers") from error
    effort.spend(width * height)
    crop = run_lengths.decode({"size": [width, height], "counts": runs}).T
    return run_lengths.encode_at(crop, top, left, size_hw)


def _parse(text: str, where: str) -> ElementTree.Element:
    # A document type is how XML bombs and references to other files come in; CVAT writes none.
    if "<!DOCTYPE" in text or "<!ENTITY" in text:
        raise ImageError(f"{where} declares a document type, which is not read")
    try:
        root = ElementTree.fromstring(text)  # noqa: S314 (no document type, so no entities)
    except (ElementTree.ParseError, ValueError, RecursionError, MemoryError) as error:
        raise ImageError(f"{where} is not XML", got=str(error)[:120]) from error
    if root.tag != "annotations":
        raise ImageError(
            f"{where} is not CVAT's", got=f"<{root.tag[:40]}>", expected="<annotations>"
        )
    return root


def _number(element: ElementTree.Element, key: str, where: str) -> int:
    text = element.get(key, "")
    if not re.fullmatch(r"-?[0-9]{1,9}", text):
        raise ImageError(
            f"{where} has a {element.tag} with no usable `{key}`", got=text[:40] or "nothing"
        )
    return int(text)


def _clean(text: str) -> str:
    """Text without the characters that XML cannot hold."""
    return NOT_IN_XML.sub("?", text)

"""Label Studio tasks: JSON with brush masks or polygons, as predictions to be corrected.

A brush mask is packed by thi.ng's `rle-pack`: the mask as RGBA, row by row, with the same value in
all four channels:

    32 bits  number of values       5 bits  bits per value, less 1       4 x 4 bits  sizes, less 1
    then for each run: 1 bit "repeat", 2 bits index of a size, that many bits of length less 1, the
    value (or, where "repeat" is 0, that many values in sequence)

Polygon corners are in percent of the image's width and height; a polygon is one ring, so parts and
holes are joined by slits of zero width.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from samgraph.errors import ImageError
from samgraph.formats.records import (
    Effort,
    corners,
    read_json,
    take,
    take_number,
    take_size,
    write_json,
)
from samgraph.formats.segment import DEFAULT_LABEL, Segment, SegmentedImage
from samgraph.media.mask import rle as run_lengths
from samgraph.media.mask.polygons import join_rings, mask_to_polygons, polygons_to_rle

SIZES = (3, 4, 8, 16)
WORD = 8
CHANNELS = 4


def write_label_studio(
    path: str | os.PathLike[str],
    images: Iterable[SegmentedImage],
    *,
    polygons: bool = False,
    tolerance: float = 0.0,
) -> None:
    """Write a file of tasks to import, one per image, with the segments as predictions."""
    write_json(path, label_studio_document(images, polygons=polygons, tolerance=tolerance))


def label_studio_document(
    images: Iterable[SegmentedImage], *, polygons: bool = False, tolerance: float = 0.0
) -> list[dict[str, Any]]:
    """The tasks as a value for `json.dumps`."""
    return [
        {
            "data": {"image": image.name},
            "predictions": [
                {
                    "model_version": "samgraph",
                    "result": label_studio_result(image, polygons=polygons, tolerance=tolerance),
                }
            ],
        }
        for image in images
    ]


def label_studio_result(
    image: SegmentedImage,
    *,
    polygons: bool = False,
    tolerance: float = 0.0,
    from_name: str = "label",
    to_name: str = "image",
) -> list[dict[str, Any]]:
    """The `result` list of a prediction; the names are those of the labelling configuration."""
    height, width = image.size_hw
    kind = "polygonlabels" if polygons else "brushlabels"
    result = []
    for index, segment in enumerate(image.segments):
        if segment.area == 0:
            continue
        shape = _percent_ring(segment, tolerance) if polygons else _brush(segment)
        region: dict[str, Any] = {
            "id": f"segment-{index}",
            "type": kind,
            "from_name": from_name,
            "to_name": to_name,
            "original_width": width,
            "original_height": height,
            "image_rotation": 0,
            "value": {**shape, kind: [segment.label or DEFAULT_LABEL]},
        }
        result.append(region if segment.score is None else {**region, "score": segment.score})
    return result


def read_label_studio(path: str | os.PathLike[str]) -> list[SegmentedImage]:
    """The brush masks and polygons of exported tasks: annotations, or else predictions.

    The file gives an image's size only with its regions: without regions it is (0, 0).

    Raises:
        ImageError: The file is missing, is not Label Studio's, or a region in it is damaged.
    """
    tasks, where, effort = read_json(path), f"`{path}`", Effort(path)
    if not isinstance(tasks, list):
        raise ImageError(f"{where} is not a list of tasks", got=type(tasks).__name__)
    images = []
    for task in tasks:
        name = take(take(task, "data", dict, where), "image", str, where)
        rounds = "annotations" if task.get("annotations") else "predictions"
        regions = [
            region
            for item in (take(task, rounds, list, where) if task.get(rounds) else [])
            for region in take(item, "result", list, where)
            if isinstance(region, dict) and region.get("type") in ("brushlabels", "polygonlabels")
        ]
        sizes = [
            take_size(region, "original_height", "original_width", where) for region in regions
        ]
        if len(set(sizes)) > 1:
            raise ImageError(f"{where} gives `{name}` two sizes", got=sorted(set(sizes)))
        segments = tuple(
            _read_region(region, size, where, effort)
            for region, size in zip(regions, sizes, strict=True)
        )
        images.append(SegmentedImage(name, sizes[0] if sizes else (0, 0), segments))
    return images


def encode_brush(mask: NDArray[np.bool_]) -> list[int]:
    """A mask as Label Studio's brush: a list of byte values."""
    flat = mask.ravel()
    edges = np.concatenate([[0], np.flatnonzero(flat[1:] != flat[:-1]) + 1, [flat.size]])
    bits = [f"{flat.size * CHANNELS:032b}{WORD - 1:05b}", *(f"{size - 1:04b}" for size in SIZES)]
    for start, length in zip(edges[:-1].tolist(), np.diff(edges).tolist(), strict=True):
        bits += _run_bits(length * CHANNELS, 255 if flat[start] else 0)
    text = np.frombuffer("".join(bits).encode("ascii"), np.uint8) - ord("0")
    return [int(byte) for byte in np.packbits(text)]


def decode_brush(brush: Sequence[int], size_hw: tuple[int, int]) -> NDArray[np.bool_]:
    """The mask of a brush, from its alpha channel.

    Raises:
        ImageError: The bytes are damaged, or are not those of an image of this size.
    """
    try:
        data = bytes(brush)
    except (TypeError, ValueError) as error:
        raise ImageError("a brush mask is not made of bytes") from error
    mask = np.zeros(size_hw[0] * size_hw[1], np.bool_)
    for start, stop, value in _unpacked(data, len(mask) * CHANNELS):
        mask[start // CHANNELS : stop // CHANNELS] = value > 0  # those whose alpha is in the run
    return mask.reshape(size_hw)


def _run_bits(length: int, value: int) -> Iterator[str]:
    """The bits of a run, split where it is longer than the largest size allows."""
    while length > 0:
        step = min(length, 1 << SIZES[-1])
        which = next(index for index, size in enumerate(SIZES) if step <= 1 << size)
        yield f"1{which:02b}{step - 1:0{SIZES[which]}b}{value:0{WORD}b}"
        length -= step


def _unpacked(data: bytes, expected: int) -> Iterator[tuple[int, int, int]]:
    """The runs of a packed brush: start, stop, value."""
    bits = "".join(f"{byte:08b}" for byte in data)
    position = 0

    def number(width: int) -> int:
        nonlocal position
        position += width
        if position > len(bits):
            raise ImageError("a brush mask is truncated")
        return int(bits[position - width : position], 2)

    count, word = number(32), number(5) + 1
    sizes = [number(4) + 1 for _ in range(4)]
    if count != expected:
        raise ImageError(
            "a brush mask is of another size than its image", got=count, expected=expected
        )
    done = 0
    while done < count:
        repeat, stop = number(1), done + 1 + number(sizes[number(2)])
        if stop > count:
            raise ImageError("a brush mask has more pixels than its image")
        if repeat:
            yield done, stop, number(word)
        else:
            yield from ((index, index + 1, number(word)) for index in range(done, stop))
        done = stop


def _brush(segment: Segment) -> dict[str, Any]:
    return {"format": "rle", "rle": encode_brush(segment.mask)}


def _percent_ring(segment: Segment, tolerance: float) -> dict[str, Any]:
    height, width = segment.size_hw
    outlines = mask_to_polygons(segment.mask, tolerance)
    rings = [ring for outline in outlines for ring in outline.rings]
    ring = join_rings(rings) * np.array([100 / width, 100 / height])
    return {"points": ring.tolist(), "closed": True}


def _read_region(
    region: dict[str, Any], size_hw: tuple[int, int], where: str, effort: Effort
) -> Segment:
    value = take(region, "value", dict, where)
    if region["type"] == "brushlabels":
        effort.spend(size_hw[0] * size_hw[1])
        encoded = run_lengths.encode(decode_brush(take(value, "rle", list, where), size_hw))
    else:
        scale = np.array([size_hw[1] / 100, size_hw[0] / 100])
        ring = corners(take(value, "points", list, where), where) * scale
        encoded = polygons_to_rle([ring], size_hw, effort.spend)
    labels = value.get(region["type"])
    label = labels[0] if isinstance(labels, list) and labels else None
    return Segment(
        encoded,
        label=label if isinstance(label, str) else None,
        score=take_number(region, "score"),
    )

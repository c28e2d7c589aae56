"""Tracks as lines of text: boxes as in the MOT Challenge, masks as in MOTS.

    MOT     frame,id,left,top,width,height,confidence,-1,-1,-1         frames and pixels from 1
    MOTS    frame id class height width rle                            frames count from 0

`confidence` is the predicted IoU of the mask, `class` counts the labels from 1, `rle` is COCO's
compressed encoding. An object that is absent has no line.
"""

import os
from collections.abc import Iterable

from samgraph.errors import ImageError
from samgraph.formats.records import check_size, read_text
from samgraph.formats.segment import DEFAULT_LABEL, Segment, SegmentedImage, labels_of
from samgraph.media.mask import rle as run_lengths
from samgraph.media.video.source import numbered_name
from samgraph.untrusted.text import shown

MOST_FRAMES = 2**31
MOST_ID = 2**63
FIELDS = 6


def mot_lines(frames: Iterable[SegmentedImage]) -> list[str]:
    """A line per visible object and frame, in the order of frames."""
    lines = []
    for frame, number, segment in _visible(frames):
        left, top, width, height = run_lengths.to_bbox(segment.rle)
        score = 1.0 if segment.score is None else segment.score
        box = f"{left + 1},{top + 1},{width},{height}"
        lines.append(f"{frame + 1},{number},{box},{score:.6g},-1,-1,-1")
    return lines


def mots_lines(frames: Iterable[SegmentedImage]) -> list[str]:
    """A line per visible object and frame, in the order of frames."""
    frames = list(frames)
    classes = {name: index for index, name in enumerate(labels_of(frames), start=1)}
    lines = []
    for frame, number, segment in _visible(frames):
        height, width = segment.size_hw
        counts = run_lengths.to_json(segment.rle)["counts"]
        kind = classes[segment.label or DEFAULT_LABEL]
        lines.append(f"{frame} {number} {kind} {height} {width} {counts}")
    return lines


def read_mots(path: str | os.PathLike[str]) -> list[SegmentedImage]:
    """The frames of a MOTS file that have an object, with their masks; labels are class numbers.

    Raises:
        ImageError: The file is missing, or a line of it is not MOTS.
    """
    found: dict[int, list[Segment]] = {}
    for place, line in enumerate(read_text(path).splitlines(), start=1):
        if line.strip():
            where = f"line {place} of `{shown(os.fspath(path))}`"
            frame, segment = _read_line(line, where)
            found.setdefault(frame, []).append(segment)
    sizes = {segment.size_hw for segments in found.values() for segment in segments}
    if len(sizes) != 1:
        got = "no line" if not sizes else f"masks of {len(sizes)} sizes"
        raise ImageError(f"`{shown(os.fspath(path))}` holds no tracks", got=got)
    size_hw = sizes.pop()
    return [
        SegmentedImage(numbered_name(frame), size_hw, tuple(found[frame]), index=frame)
        for frame in sorted(found)
    ]


def _read_line(line: str, where: str) -> tuple[int, Segment]:
    parts = line.split()
    if len(parts) != FIELDS or not all(_is_number(part) for part in parts[:5]):
        raise ImageError(
            f"{where} is not MOTS",
            got=shown(line[:60]),
            expected="frame id class height width rle",
        )
    frame, number, kind, height, width = map(int, parts[:5])
    if frame > MOST_FRAMES or number >= MOST_ID:
        raise ImageError(f"{where} has an impossible frame or id", got=shown(line[:60]))
    size_hw = check_size(height, width, where)
    counts = run_lengths.counts_of({"size": list(size_hw), "counts": parts[5]})
    encoded = run_lengths.from_counts(counts, size_hw)
    return frame, Segment(encoded, label=f"class {kind}", object_id=number)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 19


def _visible(frames: Iterable[SegmentedImage]) -> Iterable[tuple[int, int, Segment]]:
    """Frame index, object number and segment of everything that is visible."""
    for place, image in enumerate(frames):
        frame = place if image.index is None else image.index
        for index, segment in enumerate(image.segments, start=1):
            if segment.area:
                yield frame, index if segment.object_id is None else segment.object_id, segment

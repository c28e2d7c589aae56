"""The files of `samgraph track` that hold all frames, made of its journal at the end."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from samgraph.errors import OutputError, VideoError
from samgraph.formats.coco import write_coco
from samgraph.formats.segment import Segment, SegmentedImage
from samgraph.jobs.journal import RunFolder
from samgraph.media.drawing import overlay
from samgraph.media.mask import rle as run_lengths
from samgraph.media.video.frames import FrameSource
from samgraph.media.video.writer import VideoWriter
from samgraph.predict.video.object_prompts import ObjectId

DEFAULT_RATE = 25.0


def write_coco_file(
    folder: RunFolder, size_hw: tuple[int, int], numbers: dict[ObjectId, int]
) -> None:
    """One annotation file for all frames; objects that are not there have no annotation."""
    images = [
        SegmentedImage(f"{record['frame']:05d}.png", size_hw, tuple(_segments(record, numbers)))
        for record in _fitting(folder, size_hw, numbers)
    ]
    write_coco(folder.path / "annotations.json", images)


def write_overlay(folder: RunFolder, source: FrameSource, numbers: dict[ObjectId, int]) -> None:
    """A video of the frames with their masks, in the order and at the times they are shown."""
    records = _fitting(folder, source.size_hw, numbers)
    first: float | None = None
    with VideoWriter(folder.path / "overlay.mp4", source.size_hw, rate=_rate(source)) as video:
        for record in records:
            objects = record["objects"]
            masks = [run_lengths.decode(one["segmentation"]) for one in objects]
            stack = np.stack(masks) if masks else np.zeros((0, *source.size_hw), np.bool_)
            ids = [numbers[one["id"]] for one in objects]
            seconds = record["time"]
            first = seconds if first is None else first
            since = None if seconds is None or first is None else seconds - first
            video.write(overlay(source.frame(record["frame"]), stack, object_ids=ids), since)


def _fitting(
    folder: RunFolder, size_hw: tuple[int, int], numbers: dict[ObjectId, int]
) -> Iterator[dict[str, Any]]:
    """The lines of the journal, whose objects and masks must be those of this run.

    Raises:
        OutputError: They are not: the journal is of another run.
    """
    for record in folder.journal.records():
        for obj in record["objects"]:
            if obj["id"] not in numbers or obj["segmentation"]["size"] != size_hw:
                raise OutputError(
                    f"`{folder.path}` holds the frames of another run",
                    got=f"object `{obj['id']}` on frame {record['frame']}",
                    hint="choose another folder with -o",
                )
        yield record


def _segments(record: dict[str, Any], numbers: dict[ObjectId, int]) -> Iterator[Segment]:
    for one in record["objects"]:
        if one["area"]:
            shape = one["segmentation"]
            yield Segment(
                run_lengths.from_counts(run_lengths.counts_of(shape), tuple(shape["size"])),
                label=one["id"] if isinstance(one["id"], str) else None,
                score=one["score"],
                object_id=numbers[one["id"]],
            )


def _rate(source: FrameSource) -> float:
    """Frames a second of the source, from the times of its first and last frame."""
    last = (source.length or 1) - 1
    try:
        end = source.time(last) if last else None
    except VideoError:
        end = None
    return min(last / end, 1000.0) if end else DEFAULT_RATE

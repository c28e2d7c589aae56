"""Segmenting a volume from prompts, into one file."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from samgraph.errors import OutputError
from samgraph.jobs.prompts import Prompts
from samgraph.media.volume.opening import open_scan
from samgraph.media.volume.scan import MAX_VOXELS
from samgraph.media.volume.slices import Slices
from samgraph.media.volume.window import Window
from samgraph.predict.video.prompts import checked_frame
from samgraph.predict.volume.result import VolumeResult, output_suffix
from samgraph.predict.volume.volume import open_volume
from samgraph.progress import ShowProgress
from samgraph.untrusted.text import shown


@dataclass(frozen=True, slots=True)
class ScanOptions:
    """How a volume is read and looked at."""

    axis: int | str | None = None
    window: Window = None
    series: str | None = None
    max_voxels: int = MAX_VOXELS


@dataclass(frozen=True, slots=True)
class SliceRange:
    """The slices to look at, and what of them is kept."""

    start: int | None = None
    end: int | None = None
    largest: bool = True


@dataclass(frozen=True, slots=True)
class VolumeJob:
    """A volume, the prompts on its slices, and the file for its labels."""

    source: str
    prompts: Prompts
    out: Path
    scan: ScanOptions = ScanOptions()
    slices: SliceRange = SliceRange()
    options: tuple[tuple[str, Any], ...] = ()


def run_volume(
    job: VolumeJob, load: Callable[[], Any], progress: ShowProgress = None
) -> VolumeResult:
    """Segment a volume and write the result. The model is loaded when all else is known to fit.

    Raises:
        SamgraphError: The volume, a prompt or an option cannot be used, or the file not be written.
    """
    output_suffix(job.out)
    folder = job.out.parent
    if not folder.is_dir():
        hint = f"make the folder first: `mkdir -p {shown(str(folder))}`"
        raise OutputError(f"`{shown(os.fspath(job.out))}` cannot be written", hint=hint)
    how = job.scan
    scan = open_scan(job.source, series=how.series, max_voxels=how.max_voxels)
    slices = Slices(scan, scan.axis_of(how.axis), how.window)
    for _, index in job.prompts:
        checked_frame(index, slices.length, "slice")
    volume = open_volume(
        load().core, scan, axis=slices.axis, window=how.window, **dict(job.options)
    )
    for (name, index), prompt in job.prompts.items():
        volume.add(slice=index, object=name, **prompt.arguments())
    chosen = job.slices
    result = volume.segment(
        start=chosen.start, end=chosen.end, largest=chosen.largest, progress=progress
    )
    result.save(job.out)
    return result

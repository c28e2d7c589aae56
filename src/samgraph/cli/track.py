"""`samgraph track`: follow objects through a video."""

import json
from pathlib import Path
from typing import Any

import click

from samgraph.cli.exit_codes import ExitCode
from samgraph.cli.option_groups import (
    SectionedCommand,
    option_group,
    policy_option,
    section,
    write_options,
)
from samgraph.cli.options import FilePath, ModelChoice, model_options
from samgraph.cli.track_prompts import VideoPrompts, frame_prompt_options
from samgraph.errors import OptionError, printable
from samgraph.formats.table import FORMATS, WriteOptions
from samgraph.jobs.journal import JOURNAL
from samgraph.jobs.track import (
    FrameRange,
    Job,
    RunOptions,
    TrackingOptions,
    TrackJob,
    TrackReport,
    run_track,
)
from samgraph.jobs.track_everything import EverythingJob, SearchOptions
from samgraph.predict.video.prompts import ObjectId
from samgraph.progress import pace

FRAME = click.IntRange(min=0)
_EXAMPLES = """
\b
Examples:
  samgraph track clip.mp4 --point 210,350 -o out/
  samgraph track frames/ --box 75,275,400,600:1 --point 30,40@12:2 -o out/ --format coco
  samgraph track clip.mp4 --mask first.png -o out/ --format davis --format overlay
  samgraph track clip.mp4 --point 210,350 -o out/ --resume
  samgraph track clip.mp4 --everything -o out/ --format coco-vid --format mot
"""

range_options = option_group(
    "frame_range",
    FrameRange,
    click.option(
        "--start", type=FRAME, help="The first frame; by default the first prompted frame."
    ),
    click.option("--end", type=FRAME, help="The last frame, included."),
    click.option("--reverse", is_flag=True, help="Towards frame 0."),
    click.option("--both", is_flag=True, help="Forward from the first frame, then back from it."),
)
tracking_options = option_group(
    "tracking",
    TrackingOptions,
    click.option(
        "--on-damage", type=click.Choice(["error", "skip"]), default="error", show_default=True,
        help="What to do at a frame that cannot be read.",
    ),
    click.option(
        "--memory-precision", type=click.Choice(["bf16", "fp32"]), default="bf16",
        show_default=True, help="Of stored memories; bf16 is what the reference does.",
    ),
    click.option(
        "--fill-holes", type=click.IntRange(min=0), default=0, metavar="AREA",
        help="Fill holes of at most N pixels of the low-resolution mask.",
    ),
    click.option(
        "--overlaps/--no-overlaps", default=True,
        help="Whether a pixel may belong to several objects (the default).",
    ),
    policy_option,
)  # fmt: skip
every_option = click.option(
    "--every", type=FRAME, metavar="N",
    help="Search for new things every N frames (30), and when the picture changes.",
)  # fmt: skip
max_objects_option = click.option(
    "--max-objects", type=click.IntRange(min=1), metavar="N",
    help="The most objects tracked at once (32): the absent and the smallest end.",
)  # fmt: skip
search_options = option_group(
    "search",
    SearchOptions,
    click.option(
        "--everything", is_flag=True,
        help="Find and track everything, without prompts; new things as they enter.",
    ),
    every_option,
    max_objects_option,
    click.option(
        "--points-per-side", type=click.IntRange(min=1), metavar="N",
        help="Points along each side of the grid that a search prompts (16).",
    ),
)  # fmt: skip
run_options = option_group(
    "run",
    RunOptions,
    click.option("--resume", is_flag=True, help="Continue the run in OUT from where it stopped."),
    click.option("--overwrite", is_flag=True, help="Replace an earlier run in OUT."),
    click.option(
        "--max-memory-mb",
        type=click.FloatRange(min=1),
        metavar="MB",
        help="The most memory for frames and objects, without the model.",
    ),
    click.option(
        "--progress/--quiet",
        default=True,
        help="Print progress and a summary (the default), or only what is wrong.",
    ),
)


@click.command(cls=SectionedCommand, epilog=_EXAMPLES)
@click.argument("video")
@section("Prompts", frame_prompt_options)
@section("Without prompts", search_options)
@section("Frames", range_options)
@section("Tracking", tracking_options)
@section(
    "Output",
    click.option(
        "-o", "--output", "out", required=True, type=FilePath(path_type=Path), metavar="OUT",
        help="The folder of the run.",
    ),
    click.option(
        "--format", "formats", multiple=True, type=click.Choice(list(FORMATS)), metavar="NAME",
        default=("davis",), show_default=True,
        help=f"What to write, may be repeated: {', '.join(FORMATS)} (`samgraph formats` explains "
        "them). Several formats have a folder each.",
    ),
    write_options("tolerance", "crop"),
    click.option(
        "--label", "labels", multiple=True, metavar="NAME",
        help="What an object is called in annotations, instead of its id: once for all, or for "
        "each object in the order of their numbers.",
    ),
    click.option("--json", "as_json", is_flag=True, help="Print a summary as JSON."),
)  # fmt: skip
@section(
    "Run",
    run_options,
    click.option(
        "--strict", is_flag=True, help="Exit with 2 instead of 3 where damage was skipped."
    ),
)
@section("Model", model_options)
def command(
    video: str,
    prompts: VideoPrompts,
    search: SearchOptions,
    out: Path,
    formats: tuple[str, ...],
    write: WriteOptions,
    labels: tuple[str, ...],
    as_json: bool,
    frame_range: FrameRange,
    tracking: TrackingOptions,
    strict: bool,
    run: RunOptions,
    choice: ModelChoice,
) -> ExitCode:
    """Track objects through VIDEO, a file or a folder of images, and write masks to OUT.

    Prompts are for any frame and object: X,Y@FRAME:OBJECT; by default for the first frame and
    object 1. OUT also gets frames.jsonl, a line per frame, written while tracking: after a stop of
    any kind, --resume continues, and ends with the same files.
    """
    names = tuple(dict.fromkeys(formats))
    job: Job
    if search.everything:
        if prompts != VideoPrompts() or len(labels) > 1:
            raise OptionError("--everything takes no prompts, and one --label at most")
        found = search.discovery()
        label = labels[0] if labels else None
        job = EverythingJob(video, out, names, frame_range, tracking, write, label, found)
    else:
        search.refuse_unused()
        given = prompts.by_object_and_frame(frame_range.start or 0)
        named = _labels(labels, tuple(dict.fromkeys(name for name, _ in given)))
        job = TrackJob(video, given, out, names, frame_range, tracking, write, named)
    try:
        report = run_track(job, choice.load, run)
    except KeyboardInterrupt as stop:
        if not (out / JOURNAL).is_file():
            raise
        raise KeyboardInterrupt("run it again with --resume to continue") from stop
    if as_json:
        click.echo(json.dumps(_summary(report, out), indent=2))
    return _print(report, out, strict=strict, quiet=as_json or run.progress is False)


def _labels(labels: tuple[str, ...], objects: tuple[ObjectId, ...]) -> dict[ObjectId, str]:
    """The label of each object: one for all, or one for each."""
    if len(labels) == 1:
        return dict.fromkeys(objects, labels[0])
    if labels and len(labels) != len(objects):
        raise OptionError(
            "there is not one --label for each object",
            got=f"{len(labels)} labels for objects {', '.join(map(str, objects))}",
        )
    return dict(zip(objects, labels, strict=bool(labels)))


def _summary(report: TrackReport, out: Path) -> dict[str, Any]:
    return {
        "output": str(out),
        "frames": report.written,
        "skipped": report.skipped,
        "damage": report.damage,
        "frames_per_second": None if report.rate is None else round(report.rate, 4),
        "written": [str(file) for file in report.files],
    }


def _print(report: TrackReport, out: Path, *, strict: bool, quiet: bool) -> ExitCode:
    """Print how the run ended; the exit code."""
    rate = "" if report.rate is None else f", {pace(report.rate)}"
    if not quiet:
        click.echo(printable(f"{report.written} frames in {out}{rate}"), err=True)
    if report.damage is None:
        return ExitCode.DONE
    counts = f"{report.written} written + {report.skipped} skipped"
    text = f"damage: {report.damage} ({counts} = {report.attempted})"
    click.echo(printable(text), err=True)
    return ExitCode.BAD_INPUT if strict else ExitCode.DAMAGE

"""`samgraph track`: follow objects through a video."""

from pathlib import Path

import click

from samgraph.cli.options import ModelChoice, model_options
from samgraph.cli.track_prompts import BOX, MASK, POINT, Placed, gathered
from samgraph.errors import printable
from samgraph.jobs.track import FORMATS, Plan, Report, run_plan
from samgraph.media.video.source import OnDamage

DONE, BAD_INPUT, DAMAGE = 0, 2, 3
FRAME = click.IntRange(min=0)
_EXAMPLES = """
\b
Examples:
  samgraph track clip.mp4 --point 210,350 -o out/
  samgraph track frames/ --box 75,275,400,600:1 --point 30,40@12:2 -o out/ --format coco
  samgraph track clip.mp4 --mask first.png -o out/ --format overlay
  samgraph track clip.mp4 --point 210,350 -o out/ --resume
"""


@click.command(epilog=_EXAMPLES)
@click.argument("video")
@click.option("--point", "points", multiple=True, type=POINT, help="A click on an object.")
@click.option("--negative", "negatives", multiple=True, type=POINT, help="A click beside it.")
@click.option("--box", "boxes", multiple=True, type=BOX, help="A box around it.")
@click.option(
    "--mask",
    "masks",
    multiple=True,
    type=MASK,
    help="A mask as an image; one with several numbers in it has an object for each.",
)
@click.option("-o", "--output", "out", required=True, type=click.Path(path_type=Path))
@click.option("--format", "kind", type=click.Choice(FORMATS), default="davis", show_default=True)
@click.option("--start", type=FRAME, help="The first frame; that of the first prompt if not said.")
@click.option("--end", type=FRAME, help="The last frame, included.")
@click.option("--reverse", is_flag=True, help="Go towards the first frame.")
@click.option("--both", is_flag=True, help="Go forward from the first prompt, then back from it.")
@click.option("--resume", is_flag=True, help="Go on with the run in OUT, wherever it was stopped.")
@click.option("--on-damage", type=click.Choice(["error", "skip"]), default="error")
@click.option("--strict", is_flag=True, help="Damage that was skipped is a failure: exit code 2.")
@click.option("--memory-precision", type=click.Choice(["bf16", "fp32"]), default="bf16")
@click.option("--fill-holes", type=click.IntRange(min=0), default=0, metavar="AREA")
@click.option("--no-overlaps", is_flag=True, help="Give every pixel to one object at most.")
@click.option(
    "--max-memory-mb",
    type=click.FloatRange(min=1),
    help="The most memory for frames and objects, beside the model.",
)
@click.option("--quiet", is_flag=True, help="No progress.")
@model_options
def command(
    video: str,
    points: tuple[Placed, ...],
    negatives: tuple[Placed, ...],
    boxes: tuple[Placed, ...],
    masks: tuple[Placed, ...],
    out: Path,
    kind: str,
    start: int | None,
    end: int | None,
    reverse: bool,
    both: bool,
    resume: bool,
    on_damage: OnDamage,
    strict: bool,
    memory_precision: str,
    fill_holes: int,
    no_overlaps: bool,
    max_memory_mb: float | None,
    quiet: bool,
    choice: ModelChoice,
) -> int:
    """Follow objects through VIDEO, a file or a folder of images, and write masks to OUT.

    Prompts may be for any frame and object: X,Y@FRAME:OBJECT; without, they are for the first
    frame and object 1. OUT also gets frames.jsonl, a line a frame, written as it goes: after a
    stop of any kind, --resume goes on, and ends with the same files.
    """
    report = run_plan(
        Plan(
            video=video,
            prompts=gathered(points, negatives, boxes, masks, start or 0),
            out=out,
            kind=kind,
            start=start,
            end=end,
            reverse=reverse,
            both=both,
            on_damage=on_damage,
            memory_precision=memory_precision,
            fill_holes=fill_holes,
            overlaps=not no_overlaps,
        ),
        choice.load,
        precision=choice.precision,
        resume=resume,
        max_memory_mb=max_memory_mb,
        quiet=quiet,
    )
    return _told(report, out, strict=strict)


def _told(report: Report, out: Path, *, strict: bool) -> int:
    """Say how the run ended; the exit code."""
    rate = "" if report.rate is None else f", {report.rate:.1f} a second"
    click.echo(printable(f"{report.written} frames in {out}{rate}"), err=True)
    if report.damage is None:
        return DONE
    counts = f"{report.written} written + {report.skipped} skipped"
    click.echo(f"damage: {report.damage} ({counts} = {report.attempted})", err=True)
    return BAD_INPUT if strict else DAMAGE

"""`samgraph eval images`: mean IoU on photographs with masks, from a box and from clicks."""

import json
from itertools import islice
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from samgraph.cli.exit_codes import ExitCode
from samgraph.cli.options import FilePath, ModelChoice, model_options
from samgraph.errors import ImageError, printable
from samgraph.evaluate.images import Overlaps, find_pairs, image_figures
from samgraph.media.image.reading import read_label_image

_PROMPTS = ("box", "1 click", "5 clicks")


@click.command(short_help="mean IoU of photographs, from a box, one click and five clicks")
@click.argument("folder", type=FilePath(path_type=Path))
@click.option(
    "--masks",
    type=FilePath(path_type=Path),
    help="The folder of masks, if it is not within FOLDER.",
)
@click.option(
    "--limit", type=click.IntRange(min=1), help="Only the first N photographs.", metavar="N"
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@model_options
def images(
    folder: Path, masks: Path | None, limit: int | None, as_json: bool, choice: ModelChoice
) -> ExitCode:
    """Mean IoU on FOLDER: photographs in images/, masks of the same name in masks/.

    A mask is a PNG with one number per pixel: 0 is background, 255 is ignored, each other value is
    an object. The prompts are simulated from it: its box, one click, and five corrective clicks. A
    photograph that cannot be measured is left out, named at the end, and the exit code is 3.
    """
    pairs = list(islice(find_pairs(folder, masks), limit))
    model = choice.load()
    results: dict[str, list[Overlaps]] = {}
    failed: list[ImageError] = []
    for photograph, mask in pairs:
        try:
            image = model.image(photograph)
            found = list(image_figures(image, read_label_image(mask)).values())
        except ImageError as error:
            failed.append(error)
            continue
        results[photograph.name] = found
        if not as_json:
            click.echo(printable(f"{photograph.name}: {_text(Overlaps.mean(found))}"), err=True)
    if not results:
        raise failed[0]
    _report(results, as_json)
    for reason in failed:
        click.echo(printable(f"left out: {reason}"), err=True)
    return ExitCode.DAMAGE if failed else ExitCode.DONE


def _report(results: dict[str, list[Overlaps]], as_json: bool) -> None:
    overall = Overlaps.mean([item for figures in results.values() for item in figures])
    count = sum(map(len, results.values()))
    if as_json:
        rows = {
            name: {"objects": len(figures), **Overlaps.mean(figures).by_prompt()}
            for name, figures in results.items()
        }
        mean = {"objects": count, **overall.by_prompt()}
        click.echo(json.dumps({"images": rows, "mean": mean}, indent=2))
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("image", "objects", *_PROMPTS):
        table.add_column(title, justify="left" if title == "image" else "right")
    for name, figures in results.items():
        table.add_row(Text(printable(name)), str(len(figures)), *_cells(Overlaps.mean(figures)))
    table.add_row("mean over objects", str(count), *_cells(overall))
    Console(highlight=False).print(table)


def _cells(figures: Overlaps) -> list[str]:
    return [f"{100 * value:.1f}" for value in figures.by_prompt().values()]


def _text(figures: Overlaps) -> str:
    return ", ".join(f"{name} {cell}" for name, cell in zip(_PROMPTS, _cells(figures), strict=True))

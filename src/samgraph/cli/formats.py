"""`samgraph formats`: what results can be written as."""

import json

import click
from rich.console import Console
from rich.table import Table

from samgraph.formats.table import FORMATS, Format

_WIDTH = 120  # where the output is not a terminal


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(as_json: bool) -> None:
    """List the formats for --format and `result.save`.

    A format has a file per image or frame, or one file for all, whose name in a folder is shown.
    """
    rows = [_row(entry) for entry in FORMATS.values()]
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    titles = ("name", "holds", "images", "videos")
    for title in titles:
        table.add_column(title)
    for row in rows:
        table.add_row(*(str(row[title] or "-") for title in titles))
    Console(highlight=False, width=None if Console().is_terminal else _WIDTH).print(table)


def _row(entry: Format) -> dict[str, object]:
    images = "per image" if entry.encoder is not None and entry.for_images else None
    frames = "per object and frame" if entry.has_file_per_mask else "per frame"
    return {
        "name": entry.name,
        "holds": entry.holds,
        "images": images and (entry.file or images),
        "videos": entry.video_file or frames,
        "suffixes": entry.suffixes,
    }

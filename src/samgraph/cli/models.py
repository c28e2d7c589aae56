"""`samgraph models`: the models that can be loaded by name, and which are downloaded."""

import json
import os
from typing import Literal

import click
from rich.console import Console
from rich.table import Table

from samgraph.checkpoint import RELEASES, Release, builtin
from samgraph.checkpoint.download import cache_folder, cached
from samgraph.checkpoint.sister_files import APACHE, SISTER_FILES, SisterFile
from samgraph.errors import printable

_WIDTH = 120  # where the output is not a terminal
_QUALITY = ("box", "1 click", "5 clicks", "J")
_LEFT = ("name", "here")
_FIGURES_NOTE = "box and clicks: mean IoU with its teacher; J: on clips; see MODEL_CARD.md"


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(as_json: bool) -> None:
    """List the models: names, sizes, licences, what is here, the quality of the built-in model.

    SAM 2 is downloaded when it is first used; the file of a sister model is given by its path.
    """
    rows = [
        _built_in_row(),
        *(_row(release) for release in RELEASES),
        *(_sister_row(file) for file in SISTER_FILES),
    ]
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    for title in ("name", "parameters", "size", "here", *_QUALITY):
        justify: Literal["left", "right"] = "left" if title in _LEFT else "right"
        longest = max(len(str(row["name"])) for row in rows) if title == "name" else None
        table.add_column(title, justify=justify, min_width=longest)  # names are for copying
    for row in rows:
        table.add_row(*_cells(row))
    console = Console(highlight=False, width=None if Console().is_terminal else _WIDTH)
    console.print(table)
    console.print(f"\n{_FIGURES_NOTE}", soft_wrap=True)
    licences = sorted({str(row["licence"]) for row in rows if row["licence"]})
    console.print(f"licence of the weights: {', '.join(licences)}")
    unknown = ", ".join(str(row["name"]) for row in rows if not row["licence"])
    console.print(f"licence of {unknown}: see its authors' page")
    kept = printable(f"downloads are kept in {cache_folder()}")
    console.print(kept, soft_wrap=True, markup=False)
    console.print('use one with `--model NAME`, or `samgraph.load("NAME")`')


def _cells(row: dict[str, object]) -> list[str]:
    here = "built in" if row["built_in"] else "yes"
    quality = row["quality"]
    figures = quality if isinstance(quality, dict) else {}
    return [
        str(row["name"]),
        f"{row['parameters']} M",
        f"{row['megabytes']} MB",
        here if row["path"] else "no" if row["downloads"] else "by path",
        *(f"{figures[name]:.2f}" if name in figures else "" for name in _QUALITY),
    ]


def _built_in_row() -> dict[str, object]:
    nano = builtin.NANO
    path = builtin.FOLDER / nano.file
    return {
        "name": nano.name,
        "parameters": round(nano.parameters / 1e6, 1),
        "megabytes": round(nano.size_bytes / 1e6),
        "path": str(path) if os.path.isfile(path) else None,
        "built_in": True,
        "downloads": False,
        "licence": APACHE,
        "quality": nano.quality,
    }


def _row(release: Release) -> dict[str, object]:
    path = cached(release)
    return {
        "name": release.name,
        "parameters": round(release.approximate_bytes / 4e6, 1),
        "megabytes": round(release.approximate_bytes / 1e6),
        "path": None if path is None else str(path),
        "built_in": False,
        "downloads": True,
        "licence": APACHE,
        "quality": None,
    }


def _sister_row(file: SisterFile) -> dict[str, object]:
    path = cache_folder() / file.file
    return {
        "name": file.name,
        "parameters": round(file.parameters / 1e6, 1),
        "megabytes": round(file.approximate_bytes / 1e6),
        "path": str(path) if path.is_file() else None,
        "built_in": False,
        "downloads": False,
        "licence": file.licence,
        "quality": None,
    }

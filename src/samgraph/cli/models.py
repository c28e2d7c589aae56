"""`samgraph models`: the models that can be loaded by name, and which are here already."""

import json

import click
from rich.console import Console
from rich.table import Table

from samgraph.checkpoint import RELEASES, Release
from samgraph.checkpoint.download import cache_folder, cached


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(as_json: bool) -> None:
    """List the models: names, sizes, what is downloaded.

    A model that is not here yet is downloaded when it is first used.
    """
    rows = [_row(release) for release in RELEASES]
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("name", "parameters", "download", "here", "built in"):
        table.add_column(title, justify="right" if title in ("parameters", "download") else "left")
    for row in rows:
        table.add_row(
            str(row["name"]),
            f"{row['parameters']} M",
            f"{row['megabytes']} MB",
            "yes" if row["path"] else "no",
            "yes" if row["built_in"] else "no",
        )
    console = Console(highlight=False)
    console.print(table)
    console.print(f"\ndownloads are kept in {cache_folder()}", soft_wrap=True)
    console.print('use one with `--model NAME`, or `samgraph.load("NAME")`')


def _row(release: Release) -> dict[str, object]:
    path = cached(release)
    return {
        "name": release.name,
        "parameters": round(release.approximate_bytes / 4e6, 1),
        "megabytes": round(release.approximate_bytes / 1e6),
        "path": None if path is None else str(path),
        "built_in": False,
    }

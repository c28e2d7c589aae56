"""`samgraph devices`: what this machine can run on, what each can do, and which is chosen."""

import json
from dataclasses import asdict

import click
from rich.console import Console
from rich.table import Table

from samgraph.errors import printable

_COLUMNS = ("device", "name", "engine", "precisions", "memory", "")


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(as_json: bool) -> None:
    """List the devices: precisions, memory, which one `--device auto` takes, and why not others.

    The first time, a child process tries the processor's bf16, which takes some seconds.
    """
    from samgraph.runtime.device_table import device_table

    found = device_table()
    rows = [asdict(row) for row in found.rows]
    if as_json:
        click.echo(json.dumps({"devices": rows, "auto": found.reason}, indent=2))
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in _COLUMNS:
        table.add_column(title, justify="right" if title == "memory" else "left")
    for row in found.rows:
        if row.why_not is not None:
            continue
        notes = [row.note, None if row.is_tested or row.note else "untested"]
        notes.insert(0, "chosen" if row.is_chosen else None)
        table.add_row(
            row.device,
            printable(row.name or ""),
            row.engine,
            ", ".join(row.precisions),
            "" if row.memory_bytes is None else f"{row.memory_bytes / 1e9:.0f} GB",
            printable("; ".join(filter(None, notes))),
        )
    console = Console(highlight=False)
    console.print(table, markup=False)
    console.print("")
    for row in found.rows:
        if row.why_not is not None:
            line = f"not here: {row.device} ({row.why_not})"
            console.print(printable(line), soft_wrap=True, markup=False)
    console.print(printable(f"auto is {found.reason}"), soft_wrap=True, markup=False)

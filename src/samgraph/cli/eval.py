"""`samgraph eval`: quality on a data set. Here `davis`: J, F and J&F."""

import json
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from samgraph.cli.eval_images import images
from samgraph.cli.option_groups import policy_option
from samgraph.cli.options import FilePath, ModelChoice, model_options
from samgraph.errors import VideoError, printable
from samgraph.evaluate.davis import Figures, mean_figures
from samgraph.evaluate.sequences import (
    FirstPrompt,
    SequenceFigures,
    evaluate_sequence,
    find_sequences,
)


@click.group()
def command() -> None:
    """Measure mask quality on a data set."""


command.add_command(images)


@command.command(short_help="J, F and J&F of tracking, on a data set laid out as DAVIS is")
@click.argument("folder", type=FilePath(path_type=Path))
@click.option(
    "--prompt",
    type=click.Choice(["mask", "click", "box"]),
    default="mask",
    show_default=True,
    help="The prompt from each object's first mask.",
)
@click.option("--sequence", "names", multiple=True, help="Only this sequence; may be repeated.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@policy_option
@model_options
def davis(
    folder: Path,
    prompt: FirstPrompt,
    names: tuple[str, ...],
    as_json: bool,
    policy: str,
    choice: ModelChoice,
) -> None:
    """J, F and J&F on FOLDER: JPEGImages/ and Annotations/, with a folder per sequence.

    The frame that is given never counts. For comparison: the same figures for copying the first
    mask to every frame.
    """
    sequences = find_sequences(folder, names)
    model = choice.load()
    results: dict[str, SequenceFigures] = {}
    uncounted: list[str] = []
    for sequence in sequences:
        figures = evaluate_sequence(model, sequence, prompt, policy)
        if not figures.tracked:
            uncounted.append(sequence.name)
            text = f"{sequence.name}: nothing to count, only the given frame is annotated"
            click.echo(printable(text), err=True)
            continue
        results[sequence.name] = figures
        if not as_json:
            text = f"{sequence.name}: {_text(_mean([figures.tracked]))}"
            click.echo(printable(text), err=True)
    _report(results, uncounted, as_json)


def _report(results: dict[str, SequenceFigures], uncounted: list[str], as_json: bool) -> None:
    if not results:
        raise VideoError(
            "there is nothing to count",
            got="sequences of which only the given frame is annotated",
            expected="an annotation after the first",
        )
    rows = {name: [figures] for name, figures in results.items()}
    rows["mean over objects"] = list(results.values())
    means = {
        name: (_mean([row.tracked for row in some]), _mean([row.copied for row in some]))
        for name, some in rows.items()
    }
    if as_json:
        numbers = {
            name: {**_numbers(tracked), "copied": _numbers(copied)}
            for name, (tracked, copied) in means.items()
        }
        overall = numbers.pop("mean over objects")
        found = {"sequences": numbers, "mean": overall, "not_counted": uncounted}
        click.echo(json.dumps(found, indent=2))
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("sequence", "objects", "J&F", "J", "F", "copied J&F", "copied J"):
        table.add_column(title, justify="left" if title == "sequence" else "right")
    for name, (tracked, copied) in means.items():
        count = sum(len(figures.tracked) for figures in rows[name])
        table.add_row(Text(printable(name)), str(count), *_cells(tracked), *_cells(copied)[:2])
    Console(highlight=False).print(table)


def _mean(sequences: list[dict[int, Figures]]) -> Figures:
    return mean_figures([item for figures in sequences for item in figures.values()])


def _cells(figures: Figures) -> list[str]:
    return [f"{100 * value:.1f}" for value in (figures.j_and_f, figures.j, figures.f)]


def _text(figures: Figures) -> str:
    both, region, contour = _cells(figures)
    return f"J&F {both}, J {region}, F {contour}"


def _numbers(figures: Figures) -> dict[str, float]:
    return {"J&F": figures.j_and_f, "J": figures.j, "F": figures.f}

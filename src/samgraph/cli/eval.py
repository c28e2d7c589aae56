"""`samgraph eval`: quality on a data set. Here `davis`: J, F and J&F on a folder laid out so."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from samgraph.cli.eval_images import images
from samgraph.cli.options import ModelChoice, model_options
from samgraph.errors import SamgraphError, VideoError, printable
from samgraph.evaluate.clicks import first_click
from samgraph.evaluate.davis import (
    Figures,
    box_of,
    copied_figures,
    mean_figures,
    object_labels,
    sequence_figures,
)
from samgraph.media.image.reading import read_label_image
from samgraph.media.video.frames import image_files
from samgraph.predict.model import Model


@click.group()
def command() -> None:
    """Measure quality on a data set."""


command.add_command(images)


@dataclass(frozen=True, slots=True)
class Measured:
    """Of one sequence, by object: the figures, and those of copying the first mask."""

    found: dict[int, Figures]
    copied: dict[int, Figures]


@command.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.option(
    "--prompt",
    type=click.Choice(["mask", "click", "box"]),
    default="mask",
    show_default=True,
    help="What of each object's first mask is given.",
)
@click.option("--sequence", "chosen", multiple=True, help="Only this sequence; may be repeated.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@model_options
def davis(
    folder: Path, prompt: str, chosen: tuple[str, ...], as_json: bool, choice: ModelChoice
) -> None:
    """J, F and J&F on FOLDER: JPEGImages and Annotations, with a folder a sequence.

    Beside them stands what copying the first mask to every frame would give.
    """
    sequences = list(find_sequences(folder, chosen))
    network = choice.load()
    results: dict[str, Measured] = {}
    for name, frames, annotations in sequences:
        results[name] = evaluate_sequence(network, frames, annotations, prompt)
        if not as_json:
            click.echo(printable(f"{name}: {_text(_mean([results[name].found]))}"), err=True)
    _report(results, as_json)


def find_sequences(
    folder: Path, chosen: tuple[str, ...] = ()
) -> Iterator[tuple[str, Path, list[Path]]]:
    """Name, folder of frames and annotation files of each sequence."""
    images, truths = (_only_level(folder / name) for name in ("JPEGImages", "Annotations"))
    names = sorted(path.name for path in truths.iterdir() if path.is_dir())
    for name in chosen:
        if name not in names:
            raise VideoError(f"`{folder}` has no sequence `{name}`", expected=", ".join(names[:8]))
    for name in chosen or names:
        annotations = sorted((truths / name).glob("*.png"))
        if not annotations or not (images / name).is_dir():
            raise VideoError(
                f"sequence `{name}` is not complete",
                expected=f"{images.name}/{name} and {truths.name}/{name}/*.png",
            )
        yield name, images / name, annotations


def evaluate_sequence(model: Model, frames: Path, annotations: list[Path], prompt: str) -> Measured:
    """Track every object of the first annotation through a sequence and compare.

    Frames may be without annotation; those are tracked and not compared.
    """
    truth = [read_label_image(path) for path in annotations]
    labels = object_labels(truth[0])
    if not labels:
        raise VideoError(f"`{annotations[0]}` has no object")
    places = _places(frames, annotations)
    with model.video(frames) as video:
        for label in labels:
            mask = truth[0] == label
            if prompt == "mask":
                video.add(frame=places[0], object=label, mask=mask)
            elif prompt == "click":
                video.add(frame=places[0], object=label, points=[first_click(mask).point])
            else:
                video.add(frame=places[0], object=label, box=box_of(mask))
        found: dict[int, list[np.ndarray[Any, Any]]] = {label: [] for label in labels}
        annotated = set(places)
        for frame in video.track(end=places[-1]):
            if frame.index in annotated:
                for label in labels:
                    found[label].append(frame.mask(label))
    return Measured(sequence_figures(truth, found), copied_figures(truth))


def _places(frames: Path, annotations: list[Path]) -> list[int]:
    """The number of the frame of each annotation: the one with its name, or all in order."""
    numbers = {path.stem: number for number, path in enumerate(image_files(frames))}
    if len(numbers) == len(annotations):
        return list(range(len(annotations)))
    missing = [path.name for path in annotations if path.stem not in numbers]
    if missing:
        raise VideoError(
            f"`{frames}` and its annotations do not belong together",
            got=f"{len(numbers)} frames, {len(annotations)} annotations, none named `{missing[0]}`",
            expected="an annotation for every frame, or names that are those of frames",
        )
    return [numbers[path.stem] for path in annotations]


def _only_level(folder: Path) -> Path:
    """DAVIS puts a resolution between (`480p`); a folder without one is taken as it is."""
    if not folder.is_dir():
        raise VideoError(f"`{folder}` is not there", expected="JPEGImages/ and Annotations/")
    for level in ("480p", "Full-Resolution"):
        if (folder / level).is_dir():
            return folder / level
    return folder


def _report(results: dict[str, Measured], as_json: bool) -> None:
    if not results:
        raise SamgraphError("there is nothing to measure")
    rows = {name: [measured] for name, measured in results.items()}
    rows["mean over objects"] = list(results.values())
    means = {
        name: (_mean([one.found for one in all_of]), _mean([one.copied for one in all_of]))
        for name, all_of in rows.items()
    }
    if as_json:
        numbers = {
            name: {**_numbers(found), "copied": _numbers(copied)}
            for name, (found, copied) in means.items()
        }
        overall = numbers.pop("mean over objects")
        click.echo(json.dumps({"sequences": numbers, "mean": overall}, indent=2))
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("sequence", "objects", "J&F", "J", "F", "copied J&F", "copied J"):
        table.add_column(title, justify="left" if title == "sequence" else "right")
    for name, (found, copied) in means.items():
        count = sum(len(measured.found) for measured in rows[name])
        table.add_row(Text(printable(name)), str(count), *_cells(found), *_cells(copied)[:2])
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

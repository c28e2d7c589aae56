"""The output of commands on images: the options, and a line or JSON for each image."""

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import wraps
from pathlib import Path
from typing import Any

import click

from samgraph.cli.exit_codes import ExitCode
from samgraph.cli.option_groups import section, write_options
from samgraph.errors import SamgraphError, printable
from samgraph.formats.segment import Segment
from samgraph.formats.table import IMAGE_FORMATS, WriteOptions
from samgraph.jobs.images import STREAM, ImageOutput, ImageOutputs, OutputOptions, run_images
from samgraph.predict.output import Segmentation


@dataclass(frozen=True, slots=True)
class ImageOutputOptions(OutputOptions):
    """`OutputOptions`, labels for single objects, several formats, and what is printed."""

    formats: tuple[str, ...] = ()
    as_json: bool = False
    labels: tuple[str, ...] = ()
    quiet: bool = False


def output_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Adds -o, --format and what belongs to them; the command gets `output`."""

    @section(
        "Output",
        click.option(
            "-o", "--output", "out", metavar="OUT",
            help="A file, a folder (with a `/` at the end if it is new), or - for standard output.",
        ),
        click.option(
            "--format", "formats", multiple=True, type=click.Choice(IMAGE_FORMATS), metavar="NAME",
            help=f"What to write, may be repeated: {', '.join(IMAGE_FORMATS)} (`samgraph formats` "
            "explains them). By default, what the suffix of OUT implies. Several formats have a "
            "folder each in OUT.",
        ),
        write_options("tolerance", "crop"),
        click.option(
            "--label", "labels", multiple=True, metavar="NAME",
            help="What the objects are called in annotations.",
        ),
        click.option("--json", "as_json", is_flag=True, help="Print a summary as JSON."),
        click.option("--quiet", is_flag=True, help="Print only what is wrong."),
    )  # fmt: skip
    @wraps(function)
    def with_output(
        *args: Any,
        out: str | None,
        formats: tuple[str, ...],
        write: WriteOptions,
        as_json: bool,
        labels: tuple[str, ...],
        quiet: bool,
        **kwargs: Any,
    ) -> Any:
        if out == STREAM and as_json:
            raise click.UsageError("--json and -o - both need standard output")
        write = replace(write, label=labels[0]) if len(labels) == 1 else write
        shown: dict[str, Any] = {"as_json": as_json, "labels": labels, "quiet": quiet}
        output = ImageOutputOptions(
            out, formats[0] if formats else None, write, formats=formats, **shown
        )
        return function(*args, output=output, **kwargs)

    return with_output


def open_output(
    options: ImageOutputOptions, sources: list[str], default: str, *, all_masks: bool
) -> ImageOutput | ImageOutputs | None:
    """Where results are written; None where only a summary as JSON is wanted.

    Raises:
        OutputError: OUT cannot hold the format, or so many images.
    """
    options = replace(options, all_masks=all_masks)
    output: ImageOutput | ImageOutputs
    if len(set(options.formats)) > 1:
        output = ImageOutputs(options, options.formats, sources, default)
    else:
        output = ImageOutput(options, sources, default, sys.stdout.buffer)
    return None if options.out is None and options.as_json else output


def run_command(
    sources: list[str],
    work: Callable[[str], Segmentation],
    output: ImageOutput | ImageOutputs | None,
    options: ImageOutputOptions,
) -> ExitCode:
    """Work on each image, write the results and print how it went."""
    report = ConsoleReport(options)
    return report.finish(run_images(sources, work, output, report))


@dataclass
class ConsoleReport:
    """Prints how each image went: a line as it happens, or JSON at the end."""

    options: ImageOutputOptions
    images: list[dict[str, Any]] = field(default_factory=list)
    failures: list[dict[str, str]] = field(default_factory=list)

    def done(self, source: str, result: Segmentation, files: list[Path], seconds: float) -> None:
        """An image that went well."""
        height, width = result.size_hw
        written = [str(file) for file in files]
        self.images.append(
            {
                "image": source,
                "width": width,
                "height": height,
                "masks": [_described(segment) for segment in result.segments],
                "written": written,
                "seconds": round(seconds, 3),
            }
        )
        arrow = f" -> {', '.join(written)}" if written else ""
        self._print(f"{source}: {result!r}{arrow}")

    def failed(self, source: str, error: SamgraphError) -> None:
        """An image that could not be used."""
        self.failures.append({"image": source, "error": error.what})
        click.echo(printable(f"error: {error}"), err=True)

    def finish(self, files: list[Path]) -> ExitCode:
        """The summary; `files` hold all images."""
        for file in files:
            self._print(f"wrote {file}")
        if self.options.as_json:
            written = [str(file) for file in files]
            summary = {"images": self.images, "failed": self.failures, "written": written}
            click.echo(json.dumps(summary, indent=2))
        if not self.failures:
            return ExitCode.DONE
        total = len(self.images) + len(self.failures)
        if total > 1:
            names = ", ".join(f"`{entry['image']}`" for entry in self.failures)
            text = f"{len(self.failures)} of {total} images failed: {names}"
            click.echo(printable(text), err=True)
        return ExitCode.DAMAGE if self.images else ExitCode.BAD_INPUT

    def _print(self, text: str) -> None:
        """A line for people, on standard error where standard output has data."""
        if not self.options.as_json and not self.options.quiet:
            click.echo(printable(text), err=self.options.out == STREAM)


def _described(segment: Segment) -> dict[str, Any]:
    left, top, right, bottom = segment.box_xyxy
    return {
        "score": segment.score,
        "stability": segment.stability,
        "area": segment.area,
        "bbox": [left, top, right - left, bottom - top],
    }

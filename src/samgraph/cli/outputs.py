"""Where results go: a file, a folder, one file for many images, or standard output.

A batch goes on after an image that fails; at the end it is told what failed, and the exit code
says so. What was done before an interruption is kept.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import click

from samgraph.cli.options import STREAM, read_source
from samgraph.errors import OutputError, SamgraphError, printable
from samgraph.formats.segment import SegmentedImage
from samgraph.media.files import write_atomically
from samgraph.predict import rendering
from samgraph.predict.output import Segmentation, numbered
from samgraph.predict.rendering import FORMATS, WriteOptions
from samgraph.untrusted.text import json_bytes

DONE, BAD_INPUT, DAMAGE = 0, 2, 3
# Formats that hold many images in one file, and the file's name where only a folder is given.
JOINED = {"coco": "annotations.json", "polygons": "polygons.json", "sam": "masks.json"}
_ENDINGS = {"png": "_mask", "cutout": "_cutout", "overlay": "_overlay"}

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class OutputOptions:
    """What a command was told about its output."""

    out: str | None
    format: str | None
    label: str | None = None
    tolerance: float = 0.0
    crop: bool = False
    as_json: bool = False

    @property
    def look(self) -> WriteOptions:
        """How to write it."""
        return WriteOptions(label=self.label, tolerance=self.tolerance, crop=self.crop)


def output_options(function: Function) -> Callable[..., Any]:
    """Adds -o, --format and what belongs to them; the command gets `output`, an `OutputOptions`."""

    @click.option(
        "-o",
        "--output",
        "out",
        metavar="OUT",
        help="A file, a folder (with a `/` at the end if it is new), or - for standard output.",
    )
    @click.option(
        "--format",
        type=click.Choice(FORMATS),
        help="What to write; if not said, the suffix of OUT tells.",
    )
    @click.option("--label", metavar="NAME", help="What the objects are called in annotations.")
    @click.option(
        "--tolerance",
        type=click.FloatRange(min=0),
        default=0.0,
        metavar="PIXELS",
        help="How far a polygon may be from the mask; coco and labelme then get polygons.",
    )
    @click.option("--crop", is_flag=True, help="Cut a cut-out down to the object.")
    @click.option("--json", "as_json", is_flag=True, help="Print a summary as JSON.")
    @wraps(function)
    def with_wish(
        *args: Any,
        out: str | None,
        format: str | None,
        label: str | None,
        tolerance: float,
        crop: bool,
        as_json: bool,
        **kwargs: Any,
    ) -> Any:
        if out == STREAM and as_json:
            raise click.UsageError("--json and -o - both want standard output")
        output = OutputOptions(out, format, label, tolerance, crop, as_json)
        return function(*args, output=output, **kwargs)

    return with_wish


class Outputs:
    """Writes results where they were asked to go."""

    def __init__(
        self, output: OutputOptions, sources: list[str], default: str, *, all_masks: bool
    ) -> None:
        self.output, self.all_masks = output, all_masks
        self._sources = {os.path.realpath(source) for source in sources if source != STREAM}
        self._folder = _folder(output.out, len(sources))
        self.kind = _kind(output, default, is_folder=self._folder is not None)
        if output.out == STREAM and len(sources) > 1 and self.kind not in JOINED:
            raise click.UsageError(f"standard output takes one image as {self.kind}")
        self._check_room(len(sources))
        self._joined: list[SegmentedImage] = []
        self._used: dict[Path, str] = {}

    @property
    def writes(self) -> bool:
        """Whether anything is written at all: a summary as JSON may be all that is wanted."""
        return self.output.out is not None or not self.output.as_json

    def _check_room(self, count: int) -> None:
        """Refuse one file for many images where it can hold only one."""
        out = self.output.out
        if count > 1 and out not in (None, STREAM) and not self._folder and self.kind not in JOINED:
            raise OutputError(
                f"`{out}` has room for one image as {self.kind}",
                got=f"{count} images",
                hint=f"name a folder: `-o {Path(out or '').stem}/`",
            )

    def add(self, result: Segmentation) -> list[str]:
        """Write a result, or keep it for the file that holds all; what was written."""
        if not self.writes:
            return []
        output, segments = self.output, result.segments if self.all_masks else result.chosen
        if self.kind in JOINED:
            named = rendering.labelled(segments, output.label)
            self._joined.append(SegmentedImage(result.picture.name, result.size_hw, named))
            return []
        if output.out == STREAM:
            suffix = rendering.default_suffix(self.kind)
            _to_stdout(rendering.render(self.kind, suffix, result.picture, segments, output.look))
            return []
        target = self._target(result.picture.name)
        self._protect(target, len(segments))
        written = result.save(
            target,
            self.kind,  # type: ignore[arg-type]  # one of FORMATS, checked by click
            all=self.all_masks,
            label=output.label,
            tolerance=output.tolerance,
            crop=output.crop,
        )
        return [str(path) for path in written]

    def finish(self) -> list[str]:
        """Write the file that holds all images, where there is one."""
        if not self._joined:
            return []
        data = json_bytes(rendering.document(self.kind, self._joined, self.output.tolerance))
        if self.output.out == STREAM:
            _to_stdout(data + b"\n")
            return []
        target = self._joined_target()
        write_atomically(target, data)
        return [str(target)]

    def _joined_target(self) -> Path:
        if self._folder is not None:
            return _made(self._folder) / JOINED[self.kind]
        if self.output.out is not None:
            return Path(self.output.out)
        first = Path(self._joined[0].name).stem
        return Path(f"{first}.json" if len(self._joined) == 1 else JOINED[self.kind])

    def _target(self, name: str) -> Path:
        """The file for one image, which is not that of another."""
        suffix, stem = rendering.default_suffix(self.kind), Path(name).stem or "image"
        if self._folder is not None:
            target = _made(self._folder) / f"{stem}{suffix}"
        elif self.output.out is not None:
            target = Path(self.output.out)
        else:
            target = Path(f"{stem}{_ENDINGS.get(self.kind, '')}{suffix}")
        if target in self._used:
            raise OutputError(f"`{target}` holds the result of another image", got=name)
        self._used[target] = name
        return target

    def _protect(self, target: Path, count: int) -> None:
        """Never write over an image that was given."""
        files = [target]
        if self.all_masks and self.kind in ("png", "cutout"):
            files = [numbered(target, i) for i in range(1, count + 1)]
        for file in files:
            if os.path.realpath(file) in self._sources:
                raise OutputError(
                    f"`{file}` is one of the images", hint="write to another folder with -o"
                )


@dataclass
class Report:
    """What became of each image: told as it happens, or as JSON at the end."""

    output: OutputOptions
    images: list[dict[str, Any]] = field(default_factory=list)
    failed: list[dict[str, str]] = field(default_factory=list)

    def done(self, source: str, result: Segmentation, written: list[str], seconds: float) -> None:
        """An image that went well."""
        height, width = result.size_hw
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
        self.say(f"{source}: {result!r}{arrow}")

    def failure(self, source: str, error: SamgraphError) -> None:
        """An image that did not."""
        self.failed.append({"image": source, "error": error.what})
        click.echo(f"error: {error}", err=True)

    def say(self, text: str) -> None:
        """A line for people, out of the way of data."""
        if not self.output.as_json:
            click.echo(printable(text), err=self.output.out == STREAM)

    def finish(self, written: list[str]) -> int:
        """The summary; the exit code."""
        for path in written:
            self.say(f"wrote {path}")
        if self.output.as_json:
            summary = {"images": self.images, "failed": self.failed, "written": written}
            click.echo(json.dumps(summary, indent=2))
        if not self.failed:
            return DONE
        if len(self.images) + len(self.failed) > 1:
            names = ", ".join(f"`{entry['image']}`" for entry in self.failed)
            total = len(self.images) + len(self.failed)
            text = f"{len(self.failed)} of {total} images failed: {names}"
            click.echo(printable(text), err=True)
        return DAMAGE if self.images else BAD_INPUT


def run_all(
    sources: Iterable[str],
    work: Callable[[Any, str], Segmentation],
    outputs: Outputs,
    report: Report,
) -> int:
    """Do the work on each source and write what comes of it; the exit code."""
    written: list[str] = []
    try:
        for source in sources:
            start = time.perf_counter()
            try:
                result = work(read_source(source), "image" if source == STREAM else source)
                written = outputs.add(result)
            except SamgraphError as error:
                report.failure(source, error)
                continue
            report.done(source, result, written, time.perf_counter() - start)
    finally:
        written = outputs.finish()
    return report.finish(written)


def _described(segment: Any) -> dict[str, Any]:
    left, top, right, bottom = segment.box_xyxy
    return {
        "score": segment.score,
        "stability": segment.stability,
        "area": segment.area,
        "bbox": [left, top, right - left, bottom - top],
    }


def _folder(out: str | None, count: int) -> Path | None:
    """The folder that is asked for, if it is one: it exists, ends in `/`, or is for many images."""
    if out is None or out == STREAM:
        return None
    is_folder = Path(out).is_dir() or out.endswith(("/", os.sep))
    return Path(out) if is_folder or (count > 1 and not Path(out).suffix) else None


def _kind(output: OutputOptions, default: str, *, is_folder: bool) -> str:
    if output.out is None or output.out == STREAM or is_folder:
        return output.format or default
    try:
        return rendering.format_for(output.out, output.format)
    except OutputError as error:
        hint = f"to name a folder, end it with a slash: `-o {output.out}/`"
        raise OutputError(error.what, got=error.got, expected=error.expected, hint=hint) from error


def _made(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"`{folder}` cannot be made", got=error.strerror) from error
    return folder


def _to_stdout(data: bytes) -> None:
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()

"""Work on many images: results go to a file, a folder, one file for all, or a stream.

An image that fails is reported, and the work goes on with the next. What was done before an
interruption is written.
"""

import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import BinaryIO, Protocol

from samgraph.errors import OutputError, SamgraphError
from samgraph.formats.segment import DEFAULT_LABEL, SegmentedImage, labels_of
from samgraph.formats.table import Format, WriteOptions, find_format, format_for
from samgraph.formats.yolo import write_classes
from samgraph.media.files import make_folder, write_atomically
from samgraph.predict.output import Segmentation, numbered
from samgraph.untrusted.files import real_path

STREAM = "-"


@dataclass(frozen=True, slots=True)
class OutputOptions:
    """Where results go, and in which format.

    Args:
        out: A file; a folder, which exists or ends in `/`; "-" for the stream; None for files in
            the current folder, named after the images.
        format: A name of the table in `samgraph.formats`; if omitted, what `out` implies.
        write: What the formats leave open.
        all_masks: All masks, and not only those a result has chosen.
    """

    out: str | None = None
    format: str | None = None
    write: WriteOptions = field(default_factory=WriteOptions)
    all_masks: bool = False


class ImageOutput:
    """Writes the results of `sources`; `default` is the format where nothing implies one.

    Raises:
        OutputError: The file or stream cannot hold this format, or so many images.
    """

    def __init__(
        self,
        options: OutputOptions,
        sources: Sequence[str],
        default: str,
        stream: BinaryIO | None = None,
    ) -> None:
        self._options = options
        self._stream = stream if options.out == STREAM else None
        if options.out == STREAM and stream is None:
            raise OutputError("there is no stream to write to")
        self._sources = {real_path(source) for source in sources if source != STREAM}
        self._folder = _folder(options.out, len(sources))
        self.format = self._format(default)
        self._check_capacity(len(sources))
        self._classes: dict[str, None] = {}  # every label so far, in order
        self._joined: list[SegmentedImage] = []
        self._used: dict[Path, str] = {}

    def add(self, result: Segmentation) -> list[Path]:
        """Write a result, or keep it for the file of all images; returns the files written."""
        everything = self._options.all_masks
        if self.format.file is not None or self._stream is not None:
            self._joined.append(result.segmented_image(all=everything))
            return []
        target = self._target(result.picture.name)
        self._protect(target, len(result.segments))
        if self.format.class_file is not None:
            image = result.segmented_image(self._options.write.label, all=everything)
            self._classes |= dict.fromkeys(labels_of([image]))
        return result.write(target, self.format, self._write, all=everything)

    @property
    def _write(self) -> WriteOptions:
        """What the formats leave open, with the classes so far."""
        return replace(self._options.write, classes=tuple(self._classes) or (DEFAULT_LABEL,))

    def finish(self) -> list[Path]:
        """Write the file or stream of all images, where there is one; returns the files written."""
        if self._folder is not None and self._used and self.format.class_file is not None:
            file = self._folder / self.format.class_file
            write_classes(file, self._write.classes or ())
            return [file]
        if not self._joined:
            return []
        data = self.format.encode(self._joined, self._options.write)
        if self._stream is not None:
            newline = b"\n" if self.format.file is not None else b""
            self._stream.write(data + newline)
            self._stream.flush()
            return []
        target = self._joined_target()
        write_atomically(target, data)
        return [target]

    def _format(self, default: str) -> Format:
        out, name = self._options.out, self._options.format
        if out is None or self._stream is not None or self._folder is not None:
            return find_format(name or default)
        try:
            return format_for(out, name)
        except OutputError as error:
            hint = f"to name a folder, end it with a slash: `-o {out}/`"
            what, got, expected = error.what, error.got, error.expected
            raise OutputError(what, got=got, expected=expected, hint=hint) from error

    def _check_capacity(self, count: int) -> None:
        """Refuse one file or stream for many images where the format has a file per image."""
        out = self._options.out
        if count < 2 or out is None or self._folder is not None or self.format.file is not None:
            return
        if self._stream is not None:
            raise OutputError(f"standard output takes one image as {self.format.name}")
        raise OutputError(
            f"`{out}` has room for one image as {self.format.name}",
            got=f"{count} images",
            hint=f"name a folder: `-o {Path(out).stem}/`",
        )

    def _joined_target(self) -> Path:
        if self._folder is not None:
            return make_folder(self._folder) / str(self.format.file)
        if self._options.out is not None:
            return Path(self._options.out)
        if len(self._joined) > 1:
            return Path(str(self.format.file))
        return Path(f"{Path(self._joined[0].name).stem}{self.format.suffixes[0]}")

    def _target(self, name: str) -> Path:
        """The file of one image, which is not that of another."""
        suffix, stem = self.format.suffixes[0], Path(name).stem or "image"
        if self._folder is not None:
            target = make_folder(self._folder) / f"{stem}{suffix}"
        elif self._options.out is not None:
            target = Path(self._options.out)
        else:
            target = Path(f"{stem}{self.format.ending}{suffix}")
        if target in self._used:
            raise OutputError(f"`{target}` holds the result of another image", got=name)
        self._used[target] = name
        return target

    def _protect(self, target: Path, count: int) -> None:
        """Never overwrite an image that was given."""
        files = [target]
        if self._options.all_masks and self.format.has_file_per_mask:
            files = [numbered(target, i) for i in range(1, count + 1)]
        for file in files:
            if real_path(file) in self._sources:
                raise OutputError(
                    f"`{file}` is one of the images", hint="write to another folder with -o"
                )


class ImageOutputs:
    """Several formats of the same results, each in a folder of `out`, or all beside each other."""

    def __init__(
        self, options: OutputOptions, formats: Sequence[str], sources: Sequence[str], default: str
    ) -> None:
        out = options.out
        if out is not None and (out == STREAM or (Path(out).suffix and not os.path.isdir(out))):
            raise OutputError(
                "several formats need a folder", got=f"`{out}`", hint="name one: `-o out/`"
            )
        self._each = []
        for name in dict.fromkeys(formats):
            folder = None if out is None else f"{Path(out) / name}/"
            given = replace(options, format=name, out=folder)
            self._each.append(ImageOutput(given, sources, default))

    def add(self, result: Segmentation) -> list[Path]:
        """Write a result in every format; returns the files written."""
        return [file for output in self._each for file in output.add(result)]

    def finish(self) -> list[Path]:
        """Write the files of all images; returns the files written."""
        return [file for output in self._each for file in output.finish()]


class ImageReport(Protocol):
    """Receives how each image went."""

    def done(self, source: str, result: Segmentation, files: list[Path], seconds: float) -> None:
        """The image went well; `files` are those that hold its result alone."""

    def failed(self, source: str, error: SamgraphError) -> None:
        """The image could not be used."""


def run_images(
    sources: Iterable[str],
    work: Callable[[str], Segmentation],
    output: ImageOutput | ImageOutputs | None,
    report: ImageReport,
) -> list[Path]:
    """Work on each source and write the results; returns the files that hold all images."""
    shared: list[Path] = []
    try:
        for source in sources:
            start = time.perf_counter()
            try:
                result = work(source)
                files = [] if output is None else output.add(result)
            except SamgraphError as error:
                report.failed(source, error)
                continue
            report.done(source, result, files, time.perf_counter() - start)
    finally:
        if output is not None:
            shared = output.finish()
    return shared


def _folder(out: str | None, count: int) -> Path | None:
    """`out` if it means a folder: it exists, ends in `/`, or is for many images."""
    if out is None or out == STREAM:
        return None
    is_folder = os.path.isdir(out) or out.endswith(("/", os.sep))
    return Path(out) if is_folder or (count > 1 and not Path(out).suffix) else None

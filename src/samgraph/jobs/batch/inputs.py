"""The inputs of a batch run: images or videos, each with its prompts, one at a time.

Folders are searched with all folders in them, patterns are matched, manifests are read row by row;
neighbouring rows of a file are one input. A folder with images and no video is itself a video.
Nothing is held but what a prompt file says.
"""

import glob
import hashlib
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path, PurePath
from typing import Any

from samgraph.errors import ImageError, PromptError
from samgraph.jobs.batch.manifests import has_prompt, is_manifest, read_manifest
from samgraph.jobs.batch.remote import find_remote, is_remote
from samgraph.jobs.prompt_files import PromptRow, PromptTable, read_prompt_file
from samgraph.media.video.frames import IMAGE_SUFFIXES
from samgraph.untrusted.text import json_bytes, shown

VIDEO_SUFFIXES = (".mp4", ".mov", ".m4v", ".mkv", ".webm", ".avi")


@dataclass(frozen=True, slots=True)
class Input:
    """A file with its prompts.

    Args:
        path: Where it is read: an absolute path, or an address.
        name: What it is called in results.
        prompts: The rows of its objects, as JSON has them; see `as_rows`.
    """

    path: str
    name: str
    prompts: tuple[dict[str, Any], ...] = ()

    @property
    def key(self) -> str:
        """16 characters that stand for the path."""
        return _digest(self.path.encode("utf-8", "surrogatepass"))

    @property
    def prompt_key(self) -> str:
        """16 characters that stand for the prompts."""
        fields = [{k: v for k, v in row.items() if k != "where"} for row in self.prompts]
        return _digest(json_bytes(fields, compact=True))

    @property
    def rows(self) -> list[PromptRow]:
        """The prompts."""
        return [row_of(record, self.name) for record in self.prompts]

    @property
    def stem(self) -> str:
        """A name for the input's own file or folder: readable, and no other input's."""
        stem = "".join(c if c.isalnum() or c in "-_." else "_" for c in PurePath(self.name).stem)
        return f"{stem.lstrip('.')[:80] or 'input'}-{self.key}"


@dataclass(frozen=True, slots=True)
class InputOptions:
    """How inputs are found.

    Args:
        is_video: Folders are searched for videos instead of images.
        prompts: A file with prompts for the inputs: a manifest, COCO boxes, a folder of YOLO boxes.
        needs_prompts: Inputs without a prompt are left out.
        remote: Manifests may name addresses.
    """

    is_video: bool = False
    prompts: str | None = None
    needs_prompts: bool = False
    remote: bool = False


def find_inputs(patterns: Iterable[str], options: InputOptions) -> Iterator[Input]:
    """Every input that paths, folders, patterns and manifests name, in order, as often as named.

    Raises:
        ImageError: Something is not there, or cannot be listed.
        PromptError: A manifest or prompt file is damaged, or has prompts for no input.
    """
    table = None if options.prompts is None else _prompt_table(options.prompts)
    used: set[int] = set()
    for found in _found(patterns, options):
        if table is not None and not found.prompts:
            rows = table.of(found.name)
            used.update(map(id, rows))
            found = Input(found.path, found.name, tuple(map(record_of, rows)))
        yield found
    if table is not None:
        _check_used(table, used)


def record_of(row: PromptRow) -> dict[str, Any]:
    """A prompt as JSON has it; what is not said is left out."""
    fields = {
        "box": None if row.box is None else list(row.box),
        "points": [list(point) for point in row.points],
        "negatives": [list(point) for point in row.negatives],
        "label": row.label,
        "relative": row.is_relative,
        "frame": row.frame,
        "object": row.object_id,
        "where": row.where,
    }
    return {key: value for key, value in fields.items() if value not in (None, [], False, 0)}


def row_of(record: dict[str, Any], name: str) -> PromptRow:
    """The prompt that `record_of` described."""
    return PromptRow(
        PurePath(name),
        record.get("where", f"`{name}`"),
        tuple(record["box"]) if "box" in record else None,
        tuple(map(tuple, record.get("points", ()))),
        tuple(map(tuple, record.get("negatives", ()))),
        record.get("label"),
        record.get("relative", False),
        record.get("frame", 0),
        record.get("object"),
    )


def _found(patterns: Iterable[str], options: InputOptions) -> Iterator[Input]:
    for pattern in patterns:
        if is_remote(pattern):
            for address in find_remote(pattern):
                if address == pattern or _fits(address, options):
                    yield Input(address, address)
        elif os.path.isdir(pattern):
            yield from _in_folder(pattern, options)
        elif is_manifest(pattern):
            yield from _in_manifest(pattern, options)
        elif os.path.lexists(pattern):
            yield Input(os.path.abspath(pattern), pattern)
        elif glob.has_magic(pattern):
            yield from _matching(pattern, options)
        else:
            raise ImageError(f"`{shown(pattern)}` does not exist")


def _in_folder(folder: str, options: InputOptions) -> Iterator[Input]:
    """The files of a folder and of all folders in it, in order of their names."""
    is_empty = True
    for parent, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        shown_files = sorted(name for name in files if not name.startswith("."))
        fitting = [name for name in shown_files if _fits(name, options)]
        if not fitting and options.is_video and any(map(_is_image, shown_files)):
            place = os.path.relpath(parent, folder)
            name = os.path.basename(os.path.abspath(folder)) if place == os.curdir else place
            is_empty = False
            yield Input(os.path.abspath(parent), name)
        for name in fitting:
            is_empty = False
            path = os.path.join(parent, name)
            yield Input(os.path.abspath(path), os.path.relpath(path, folder))
    if is_empty:
        kind = "videos" if options.is_video else "images"
        raise ImageError(
            f"`{shown(folder)}` holds no {kind}", expected=", ".join(_suffixes(options))
        )


def _in_manifest(manifest: str, options: InputOptions) -> Iterator[Input]:
    """The files of a manifest; neighbouring rows of one are one input."""
    folder = os.path.abspath(Path(manifest).parent)
    for name, pairs in groupby(read_manifest(manifest), key=lambda pair: pair[0]):
        rows = [row for _, row in pairs]
        if is_remote(name) and not options.remote:
            raise PromptError(
                f"{rows[0].where} names an address",
                got=shown(name),
                hint="--remote lets a manifest name addresses",
            )
        path = name if is_remote(name) else os.path.join(folder, name)
        yield Input(path, name, tuple(record_of(row) for row in rows if has_prompt(row)))


def _matching(pattern: str, options: InputOptions) -> Iterator[Input]:
    """What a pattern matches: files, and for videos folders of images."""
    matches = sorted(glob.glob(pattern, recursive=True))
    if not matches:
        raise ImageError(f"nothing matches `{shown(pattern)}`")
    for path in matches:
        is_folder = os.path.isdir(path)
        if not is_folder or (options.is_video and any(map(_is_image, os.listdir(path)))):
            yield Input(os.path.abspath(path), path)


def _suffixes(options: InputOptions) -> tuple[str, ...]:
    return VIDEO_SUFFIXES if options.is_video else IMAGE_SUFFIXES


def _fits(name: str, options: InputOptions) -> bool:
    return name.lower().endswith(_suffixes(options))


def _is_image(name: str) -> bool:
    return name.lower().endswith(IMAGE_SUFFIXES)


def _prompt_table(path: str) -> PromptTable:
    """The rows of a prompt file, by input."""
    if is_manifest(path):
        return PromptTable([row for _, row in read_manifest(path) if has_prompt(row)], path)
    return read_prompt_file(path)


def _check_used(table: PromptTable, used: set[int]) -> None:
    """Refuse prompts for inputs that were not given."""
    unused = [row for row in table.rows if id(row) not in used]
    if unused:
        more = f" and {len(unused) - 1} more" if len(unused) > 1 else ""
        raise PromptError(
            f"{unused[0].where} is of an input that was not given",
            got=f"`{shown(str(unused[0].path))}`{more}",
        )


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=8).hexdigest()

"""Manifests: files that list inputs, a row per object, in any number, read a row at a time.

    path,x0,y0,x1,y1,label              {"path": "a.jpg", "box": [1, 2, 30, 40], "label": "cat"}
    a.jpg,1,2,30,40,cat                 {"path": "b.jpg", "points": [[5, 6]], "negatives": [[1, 1]]}
    b.jpg,,,,,                          {"path": "c.mp4", "prompts": [{"frame": 3, "object": "cup",
                                                                       "box": [1, 2, 30, 40]}]}

CSV with a header, JSON lines, or Parquet with these columns. A row without a prompt is an input for
tasks that need none. Paths are relative to the manifest's folder. Manifests are untrusted: every
row is checked, and a path is only ever read as an image or a video.
"""

import csv
import math
from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Any

from samgraph.errors import PromptError
from samgraph.jobs.prompt_files import (
    COLUMNS,
    CORNERS,
    PATHS,
    Numbers,
    PromptRow,
    check_columns,
    column_names,
    numbers_in,
    pairs_in,
)
from samgraph.untrusted.files import open_regular
from samgraph.untrusted.text import shown, strict_json

SUFFIXES = (".csv", ".jsonl", ".ndjson", ".parquet")
LONGEST_LINE = 1 << 20
LONGEST_PATH, LONGEST_TEXT = 4096, 256
MOST_POINTS, MOST_PROMPTS = 4096, 65_536
MOST_FRAMES = 2**31
ROWS_AT_ONCE = 1024
LARGEST_ROW_GROUP, MOST_VALUES = 1 << 28, 1 << 25
ALL_COLUMNS = {*COLUMNS, "frame", "object", "prompts"}


def is_manifest(path: str) -> bool:
    """Whether a path is that of a manifest, by its suffix."""
    return PurePath(path).suffix.lower() in SUFFIXES


def read_manifest(path: str) -> Iterator[tuple[str, PromptRow]]:
    """The rows of a manifest, each with its file as written there.

    Rows without box and points are inputs without a prompt.

    Raises:
        PromptError: It cannot be read, or a row is not one.
    """
    suffix = PurePath(path).suffix.lower()
    read = {".csv": _csv_rows, ".parquet": _parquet_rows}.get(suffix, _json_rows)
    try:
        for where, values in read(path):
            yield from _rows(values, where)
    except (OSError, ValueError) as error:
        if isinstance(error, PromptError):
            raise
        reason = getattr(error, "strerror", None) or str(error)
        raise PromptError(f"{_label(path)} cannot be read", got=shown(str(reason))) from error


def has_prompt(row: PromptRow) -> bool:
    """Whether a row says where its object is."""
    return bool(row.box or row.points or row.negatives)


def _label(path: str) -> str:
    return f"`{shown(path)}`"


def _lines(path: str) -> Iterator[tuple[int, str]]:
    """The lines of a UTF-8 file with their numbers."""
    with open_regular(path) as file:
        number = 0
        while line := file.readline(LONGEST_LINE + 1):
            number += 1
            if len(line) > LONGEST_LINE:
                raise PromptError(
                    f"line {number} of {_label(path)} is too long",
                    expected=f"at most {LONGEST_LINE:,} bytes",
                )
            try:
                yield number, line.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                raise PromptError(
                    f"line {number} of {_label(path)} is not text", expected="UTF-8"
                ) from error


def _csv_rows(path: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    reader = csv.reader((line for _, line in _lines(path)), skipinitialspace=True)
    try:
        names = column_names([name.strip().lower() for name in next(reader, [])])
        _check_columns(names, path)
        for fields in reader:
            values = {k: v.strip() for k, v in zip(names, fields, strict=False) if k and v.strip()}
            if values:
                yield f"line {reader.line_num} of {_label(path)}", values
    except csv.Error as error:
        raise PromptError(f"{_label(path)} is not CSV", got=shown(str(error))) from error


def _json_rows(path: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for number, line in _lines(path):
        if not line.strip():
            continue
        where = f"line {number} of {_label(path)}"
        try:
            values = strict_json(line, most_bytes=LONGEST_LINE)
        except ValueError as error:
            raise PromptError(f"{where} is not JSON", got=shown(str(error))) from error
        if not isinstance(values, dict):
            raise PromptError(f"{where} is not an object", got=type(values).__name__)
        values = _renamed(values)
        _check_columns(list(values), where)
        yield where, values


def _parquet_rows(path: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError as error:
        raise PromptError(
            f"{_label(path)} needs pyarrow", hint="pip install 'samgraph[parquet]'"
        ) from error
    number = 0
    try:
        with open_regular(path) as stream, parquet.ParquetFile(stream) as file:
            _check_columns(column_names(file.schema_arrow.names), path)
            _check_sizes(file, path)
            texts = [
                field.name
                for field in file.schema_arrow
                if field.type in (pa.string(), pa.large_string())
            ]
        # Texts that repeat are kept once, as in the file: a thousand of a megabyte may be there.
        with (
            open_regular(path) as stream,
            parquet.ParquetFile(stream, read_dictionary=texts) as file,
        ):
            for batch in file.iter_batches(ROWS_AT_ONCE, use_threads=False):
                for row in range(batch.num_rows):
                    number += 1
                    where = f"row {number} of {_label(path)}"
                    yield where, _renamed(_parquet_row(pa, batch, row, where))
    except (pa.ArrowException, OverflowError, MemoryError) as error:
        raise PromptError(f"{_label(path)} is not Parquet", got=shown(str(error))) from error


def _check_sizes(file: Any, path: str) -> None:
    """Refuse row groups that take much memory: a few bytes can stand for any number of values."""
    groups = [file.metadata.row_group(index) for index in range(file.num_row_groups)]
    size = max((group.total_byte_size for group in groups), default=0)
    values = 0
    if size <= LARGEST_ROW_GROUP:
        file.scan_contents()  # raises for damaged columns; to ask for one would end the process
        counts = [[g.column(i).num_values for i in range(g.num_columns)] for g in groups]
        values = max(map(sum, counts), default=0)
    if size > LARGEST_ROW_GROUP or values > MOST_VALUES:
        raise PromptError(
            f"{_label(path)} has a row group that is too large",
            got=f"{size:,} bytes, {values:,} values",
            expected=f"at most {LARGEST_ROW_GROUP:,} bytes and {MOST_VALUES:,} values",
        )


def _parquet_row(pa: Any, batch: Any, row: int, where: str) -> dict[str, Any]:
    """The values of a row, without those that are null."""
    found = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        is_text = pa.types.is_dictionary(column.type)
        if not is_text and column.slice(row, 1).nbytes > LONGEST_LINE:
            raise PromptError(f"{where} is too long", expected=f"at most {LONGEST_LINE:,} bytes")
        value = column[row].as_py()
        if value is not None:
            found[name] = value
    return found


def _check_columns(names: list[str], where: str) -> None:
    if not set(PATHS) & set(names):
        raise PromptError(
            f"{where if where.endswith('`') else _label(where)} does not say which file it is for",
            got=shown(", ".join(names), 100) or "nothing",
            expected="path, and box or x0,y0,x1,y1 or points, and label",
        )
    check_columns(names, where if where.endswith("`") else _label(where), ALL_COLUMNS)


def _renamed(values: Mapping[Any, Any]) -> dict[Any, Any]:
    """Fields as they are called here, without those that are ignored."""
    pairs = zip(column_names(list(values)), values.values(), strict=True)
    return {name: value for name, value in pairs if name != ""}


def _rows(values: Mapping[str, Any], where: str) -> Iterator[tuple[str, PromptRow]]:
    path = next((values[name] for name in PATHS if values.get(name)), None)
    if not isinstance(path, str) or not 0 < len(path) <= LONGEST_PATH or "\0" in path:
        raise PromptError(f"{where} does not say which file it is for")
    listed = values.get("prompts")
    if listed is None:
        yield path, _row(path, values, where)
        return
    if not isinstance(listed, list) or len(listed) > MOST_PROMPTS:
        raise PromptError(f"{where}: `prompts` is not a list of prompts")
    for number, inner in enumerate(listed, start=1):
        at = f"prompt {number} of {where}"
        if not isinstance(inner, Mapping):
            raise PromptError(f"{at} is not an object", got=type(inner).__name__)
        given = {key: value for key, value in _renamed(inner).items() if value is not None}
        strange = given.keys() - (ALL_COLUMNS - {*PATHS, "prompts"})
        if strange:
            raise PromptError(f"{at} has a field `{shown(str(min(strange, key=str)), 60)}`")
        yield path, _row(path, given, at)
    if not listed:
        yield path, _row(path, {}, where)


def _row(path: str, values: Mapping[str, Any], where: str) -> PromptRow:
    box = _numbers(values.get("box"), where)
    corners = [values[name] for name in CORNERS if name in values]
    if not box and corners:
        flat = [number for corner in corners for number in _numbers(corner, where)]
        box = tuple(flat)
    if len(box) not in (0, 4):
        raise PromptError(f"{where}: a box is four numbers", got=f"{len(box)} numbers")
    label, name = values.get("label"), values.get("object")
    if label is not None and (not isinstance(label, str) or len(label) > LONGEST_TEXT):
        raise PromptError(f"{where}: a label is a short text", got=shown(str(label), 60))
    return PromptRow(
        PurePath(path),
        where,
        box or None,
        _points(values.get("points"), where),
        _points(values.get("negatives"), where),
        label,
        frame=_frame(values.get("frame", 0), where),
        object_id=_object(name, where),
    )


def _numbers(value: Any, where: str) -> Numbers:
    """Numbers in a list, in a text, or a number by itself."""
    if value is None:
        return ()
    if isinstance(value, str):
        found: Numbers = numbers_in(value, where)
    else:
        parts = value if isinstance(value, list) else [value]
        if not all(isinstance(p, int | float) and not isinstance(p, bool) for p in parts):
            raise PromptError(f"{where} has something that is no number", got=shown(str(value), 60))
        found = tuple(map(float, parts))
    if not all(map(math.isfinite, found)) or len(found) > 2 * MOST_POINTS:
        raise PromptError(f"{where} has a number that is not finite", got=shown(str(value), 60))
    return found


def _points(value: Any, where: str) -> tuple[Numbers, ...]:
    """Pairs in a list of pairs, or in a text."""
    if value is None:
        return ()
    if isinstance(value, str):
        found = pairs_in(value, where)
    elif isinstance(value, list) and all(isinstance(pair, list) for pair in value):
        found = tuple(_numbers(pair, where) for pair in value)
    else:
        raise PromptError(f"{where}: points are pairs of x and y", got=shown(str(value), 60))
    is_finite = all(math.isfinite(number) for pair in found for number in pair)
    if len(found) > MOST_POINTS or not is_finite or any(len(pair) != 2 for pair in found):
        raise PromptError(f"{where}: points are pairs of x and y", got=shown(str(value), 60))
    return found


def _frame(value: Any, where: str) -> int:
    text = str(value).removesuffix(".0") if isinstance(value, str | int | float) else ""
    if isinstance(value, bool) or not text.isascii() or not text.isdecimal() or len(text) > 10:
        raise PromptError(f"{where}: a frame is a whole number", got=shown(str(value), 60))
    if int(text) >= MOST_FRAMES:
        raise PromptError(f"{where}: a frame is a whole number below 2^31", got=text)
    return int(text)


def _object(value: Any, where: str) -> int | str | None:
    """The id of an object: a number where it is written as one."""
    if value is None:
        return None
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) <= 9:
        return int(value)
    if isinstance(value, str) and 0 < len(value) <= LONGEST_TEXT:
        return value
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31:
        return value
    raise PromptError(f"{where}: an object is a number or a name", got=shown(str(value), 60))

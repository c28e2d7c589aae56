"""Finished shards: COCO, Parquet with a row per image, JSON lines, or an index of files.

    masks-00012.json      COCO; ids of images, annotations and categories differ between shards
    masks-00012.parquet   path, height, width, and lists with an entry per mask: rle, score, ...
    masks-00012.jsonl     a line per image, as in the parts of a run
    index-00012.jsonl     where the results of each input are: embeddings, folders of masks

A shard is a function of its results and of the shards before, so that writing it again changes
nothing.
"""

import io
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from samgraph.errors import OptionError, OutputError
from samgraph.formats.segment import DEFAULT_LABEL
from samgraph.jobs.batch.records import Result
from samgraph.jobs.batch.remote import is_remote, write_remote
from samgraph.media.files import make_folder, write_atomically
from samgraph.untrusted.text import json_bytes


@dataclass(slots=True)
class Totals:
    """What the shards before hold, so that ids go on."""

    images: int = 0
    annotations: int = 0
    categories: dict[str, int] = field(default_factory=dict)

    def add_categories(self, names: Sequence[str]) -> None:
        """Number labels that are new."""
        for name in names:
            self.categories.setdefault(name, len(self.categories) + 1)


Encoder: TypeAlias = Callable[[Sequence[Result], Totals], bytes]


@dataclass(frozen=True, slots=True)
class ShardFormat:
    """A format of shards: what its files are called, and how they are made."""

    prefix: str
    suffix: str
    encode: Encoder

    def name(self, number: int) -> str:
        """The file of a shard."""
        return f"{self.prefix}-{number:05d}{self.suffix}"


class Destination:
    """Where finished files go: a folder, or an address that fsspec writes to."""

    def __init__(self, base: str | os.PathLike[str]) -> None:
        self.base = os.fspath(base)

    @property
    def is_remote(self) -> bool:
        """Whether it is an address."""
        return is_remote(self.base)

    def write(self, name: str, data: bytes) -> None:
        """Write a file, whole or not at all; it is on the disk afterwards.

        Raises:
            OutputError: It cannot be written.
        """
        if self.is_remote:
            write_remote(f"{self.base.rstrip('/')}/{name}", data)
            return
        target = Path(self.base) / name
        make_folder(target.parent)
        write_atomically(target, data)
        _sync_folder(target.parent)


def find_shard_format(name: str) -> ShardFormat:
    """The format of that name.

    Raises:
        OptionError: There is none, or it needs a library that is missing.
    """
    if name not in SHARD_FORMATS:
        expected = ", ".join(SHARD_FORMATS)
        raise OptionError(f"there is no format `{name}` for shards", expected=expected)
    if name == "parquet":
        try:
            import pyarrow  # noqa: F401 (whether it is there)
        except ImportError as error:
            raise OptionError(
                "Parquet needs pyarrow", hint="pip install 'samgraph[parquet]'"
            ) from error
    return SHARD_FORMATS[name]


def _coco(results: Sequence[Result], totals: Totals) -> bytes:
    images: list[dict[str, Any]] = []
    annotations: list[dict[str, Any]] = []
    for number, (result, body) in enumerate(_bodies(results), start=totals.images + 1):
        images.append(
            {
                "id": number,
                "file_name": result.name,
                "height": body.get("height"),
                "width": body.get("width"),
            }
        )
        for mask in body["annotations"]:
            fields = {key: value for key, value in mask.items() if key != "label"}
            label = mask.get("label") or DEFAULT_LABEL
            ids = {
                "id": totals.annotations + len(annotations) + 1,
                "image_id": number,
                "category_id": totals.categories[label],
                "iscrowd": 0,
            }
            annotations.append({**ids, **fields})
    used = {entry["category_id"] for entry in annotations}
    categories = [
        {"id": number, "name": name} for name, number in totals.categories.items() if number in used
    ]
    document = {
        "info": {"description": "masks by samgraph"},
        "images": images,
        "categories": categories,
        "annotations": annotations,
    }
    return json_bytes(document)


def _parquet(results: Sequence[Result], totals: Totals) -> bytes:
    import pyarrow as pa
    from pyarrow import parquet

    columns: dict[str, tuple[Any, Callable[[Result, dict[str, Any]], Any]]] = {
        "path": (pa.string(), lambda result, body: _unicode(result.name)),
        "height": (pa.int32(), lambda result, body: body.get("height")),
        "width": (pa.int32(), lambda result, body: body.get("width")),
        "rle": (pa.list_(pa.string()), _listed(lambda mask: mask["segmentation"]["counts"])),
        "score": (pa.list_(pa.float32()), _listed(lambda mask: mask.get("score"))),
        "stability": (pa.list_(pa.float32()), _listed(lambda mask: mask.get("stability_score"))),
        "mask_box": (pa.list_(pa.list_(pa.float32(), 4)), _listed(_box)),
        "area": (pa.list_(pa.int64()), _listed(lambda mask: mask.get("area"))),
        "label": (pa.list_(pa.string()), _listed(lambda mask: _unicode(mask.get("label")))),
    }
    rows = list(_bodies(results))
    try:
        table = pa.table(
            {
                name: pa.array([value(result, body) for result, body in rows], kind)
                for name, (kind, value) in columns.items()
            }
        )
        stream = io.BytesIO()
        parquet.write_table(table, stream, compression="zstd")
    except (pa.ArrowException, KeyError, TypeError, UnicodeError) as error:
        raise OutputError("the results cannot be written as Parquet", got=str(error)) from error
    return stream.getvalue()


def _listed(value: Callable[[dict[str, Any]], Any]) -> Callable[[Result, dict[str, Any]], Any]:
    """A column with an entry per mask."""
    return lambda result, body: [value(mask) for mask in body["annotations"]]


def _unicode(text: Any) -> Any:
    """A text as Parquet can have it: bytes of a name that are not UTF-8 are escaped, as in JSON."""
    return text.encode("utf-8", "backslashreplace").decode() if isinstance(text, str) else text


def _box(mask: Mapping[str, Any]) -> list[float]:
    """Left, top, right, bottom."""
    left, top, width, height = mask["bbox"]
    return [left, top, left + width, top + height]


def _lines(results: Sequence[Result], totals: Totals) -> bytes:
    rows = [{"path": result.name, **(result.body or {})} for result in results]
    return b"".join(json_bytes(row, compact=True) + b"\n" for row in rows)


def _bodies(results: Sequence[Result]) -> list[tuple[Result, dict[str, Any]]]:
    return [(result, {"annotations": [], **(result.body or {})}) for result in results]


def _sync_folder(folder: Path) -> None:
    """Have the disk hold the names of a folder's files, where the system can do that."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return
    try:
        os.fsync(descriptor)
    except OSError:
        return
    finally:
        os.close(descriptor)


SHARD_FORMATS: dict[str, ShardFormat] = {
    "coco": ShardFormat("masks", ".json", _coco),
    "parquet": ShardFormat("masks", ".parquet", _parquet),
    "jsonl": ShardFormat("masks", ".jsonl", _lines),
    "index": ShardFormat("index", ".jsonl", _lines),
}

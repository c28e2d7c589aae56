"""`.safetensors` files: read with every field of the header checked, written atomically.

    [8 bytes: length of the header] [header: JSON] [the values of all tensors, contiguous]

The header has each tensor's dtype, shape and data offsets. The library's reader accepts files that
are refused here: two tensors of one name, names that look like paths, headers larger than any
model's. The library reads the files written here.
"""

import json
import math
import os
import struct
import sys
from collections.abc import Mapping
from contextlib import suppress
from operator import itemgetter
from typing import Any, BinaryIO, Literal, NoReturn, get_args

import ml_dtypes
import numpy as np

from samgraph.checkpoint import int8
from samgraph.checkpoint.source_file import Array, SourceFile, as_values, check_memory
from samgraph.checkpoint.tensor_rules import check_count, check_name, check_shape
from samgraph.errors import CheckpointError, OutputError, SamgraphError
from samgraph.untrusted.text import json_bytes, shown

Precision = Literal["fp32", "fp16", "bf16", "int8"]

# The format allows 100 MB. Parsed JSON takes up to 25 times its text, and sam2.1-large needs 0.1.
LONGEST_HEADER = 1 << 20
SHORTEST_FILE = 10
LENGTH = struct.Struct("<Q")

DTYPES: dict[str, np.dtype[Any]] = {
    "F32": np.dtype(np.float32),
    "F16": np.dtype(np.float16),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "F64": np.dtype(np.float64),
    "I64": np.dtype(np.int64),
    "I32": np.dtype(np.int32),
    "I16": np.dtype(np.int16),
    "I8": np.dtype(np.int8),
    "U64": np.dtype(np.uint64),
    "U32": np.dtype(np.uint32),
    "U16": np.dtype(np.uint16),
    "U8": np.dtype(np.uint8),
    "BOOL": np.dtype(np.bool_),
}
CODES = {dtype: code for code, dtype in DTYPES.items()}
PRECISIONS: dict[str, np.dtype[Any]] = {
    "fp32": DTYPES["F32"],
    "fp16": DTYPES["F16"],
    "bf16": DTYPES["BF16"],
}

Header = dict[str, object]
Span = tuple[str, np.dtype[Any], tuple[int, ...], int, int]


def read(file: SourceFile) -> tuple[dict[str, Array], dict[str, str]]:
    """The tensors of `file`, in the order of its header, and its metadata."""
    header, start = _read_header(file)
    metadata = _check_metadata(header.pop("__metadata__", {}), file)
    check_count(len(header), file.name)
    check_memory(file.size, file.name)
    spans = [_check_tensor(name, entry, file) for name, entry in header.items()]
    _check_cover(spans, file.size - start, file)
    stored = sorted(spans, key=itemgetter(3, 4))
    values = file.read_in_turn(start, [end - begin for *_, begin, end in stored])
    found = {span[0]: raw for span, raw in zip(stored, values, strict=True)}
    tensors = {}
    for name, dtype, shape, *_ in spans:
        raw = found[name]
        if dtype.kind == "b" and raw.size and raw.max() > 1:
            _refuse(file, f"`{shown(name)}` is neither true nor false somewhere")
        tensors[name] = as_values(raw, dtype).reshape(shape)
    return tensors, metadata


def _read_header(file: SourceFile) -> tuple[Header, int]:
    """The parsed header, and the byte offset of the values."""
    if file.size < SHORTEST_FILE:
        _refuse(file, "it is too short to be a checkpoint", f"{file.size} bytes")
    (length,) = LENGTH.unpack(file.read(0, LENGTH.size))
    start = LENGTH.size + length
    if not 2 <= length <= LONGEST_HEADER or start > file.size:
        limit = min(LONGEST_HEADER, file.size - LENGTH.size)
        _refuse(file, "its header has an impossible length", f"{length:,}", f"2 to {limit:,}")
    raw = file.read(LENGTH.size, length)
    try:
        header = json.loads(raw.decode("utf-8"), object_pairs_hook=_unique)
    except _DuplicateKeyError as error:
        _refuse(file, f"`{shown(str(error))}` is a duplicate key")
    except UnicodeDecodeError:
        _refuse(file, "its header is not UTF-8")
    except (ValueError, RecursionError):
        _refuse(file, "its header is not JSON")
    if type(header) is not dict:
        _refuse(file, "its header is not a JSON object", type(header).__name__)
    return header, start


class _DuplicateKeyError(Exception):
    """A JSON object has a duplicate key."""


def _unique(pairs: list[tuple[str, object]]) -> Header:
    """A JSON object; duplicate keys raise."""
    found: Header = {}
    for key, value in pairs:
        if key in found:
            raise _DuplicateKeyError(key)
        found[key] = value
    return found


def _check_metadata(metadata: object, file: SourceFile) -> dict[str, str]:
    """Metadata must map text to text."""
    if type(metadata) is not dict or not all(type(value) is str for value in metadata.values()):
        _refuse(file, "its metadata is not a mapping from text to text")
    return metadata


def _check_tensor(name: str, entry: object, file: SourceFile) -> Span:
    """One header entry, whose dtype, shape and data offsets must agree."""
    check_name(name, file.name)
    if type(entry) is not dict or entry.keys() != {"dtype", "shape", "data_offsets"}:
        _refuse(file, f"`{shown(name)}` is not described by a dtype, a shape and offsets")
    code, offsets = entry["dtype"], entry["data_offsets"]
    if type(code) is not str or code not in DTYPES:
        _refuse(
            file,
            f"`{shown(name)}` has an unsupported dtype",
            f"`{shown(str(code)[:40])}`",
            ", ".join(DTYPES),
        )
    shape = check_shape(entry["shape"], name, file.name)
    if type(offsets) is not list or len(offsets) != 2 or any(type(o) is not int for o in offsets):
        _refuse(file, f"the offsets of `{shown(name)}` are not two numbers")
    begin, end = offsets
    needed = math.prod(shape) * DTYPES[code].itemsize
    if not 0 <= begin <= end <= file.size or end - begin != needed:
        _refuse(
            file,
            f"the offsets of `{shown(name)}` do not fit its shape",
            shown(f"bytes {begin} to {end}"),
            shown(f"{needed} bytes, inside the file"),
        )
    return name, DTYPES[code], shape, begin, end


def _check_cover(spans: list[Span], available: int, file: SourceFile) -> None:
    """Raise unless the tensors are contiguous, without overlap or gap, to the end of the file."""
    position = 0
    for name, _, _, begin, end in sorted(spans, key=lambda span: (span[3], span[4])):
        if begin != position:
            fault = "overlaps another tensor" if begin < position else "comes after unused bytes"
            _refuse(file, f"`{shown(name)}` {fault}", f"byte {begin:,}", f"byte {position:,}")
        position = end
    if position != available:
        fault = "cut short" if position > available else "longer than its tensors"
        _refuse(file, f"it is {fault}", f"{available:,} bytes of values", f"{position:,}")


def _refuse(
    file: SourceFile, fault: str, got: str | None = None, expected: str | None = None
) -> NoReturn:
    raise CheckpointError(
        f"`{file.name}` is not a usable safetensors file: {fault}", got=got, expected=expected
    ) from None


def save(
    path: str | os.PathLike[str],
    tensors: Mapping[str, Array],
    precision: Precision = "fp32",
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Write `tensors` to `path` atomically.

    Floating-point tensors are rounded to `precision`, as `int8.py` says for "int8"; others keep
    their dtype.
    """
    target = os.fspath(path)
    if precision == "int8":
        tensors, metadata = int8.quantise(tensors), {**(metadata or {}), **int8.METADATA}
    stored = {name: _stored_dtype(name, array, precision) for name, array in tensors.items()}
    header = _build_header(tensors, stored, metadata or {})
    temporary = f"{target}.{os.urandom(4).hex()}.part"
    try:
        with open(temporary, "xb") as stream:
            stream.write(header)
            for name, array in tensors.items():
                _write_tensor(stream, name, array, stored[name])
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, target)
    except (OSError, ValueError) as error:
        if isinstance(error, SamgraphError):
            raise
        reason = getattr(error, "strerror", None) or str(error)
        raise OutputError(f"`{shown(target)}` cannot be written", got=reason) from error
    finally:
        with suppress(OSError, ValueError):
            os.unlink(temporary)


def _stored_dtype(name: str, array: Array, precision: str) -> np.dtype[Any]:
    """The dtype a tensor is written in."""
    if precision not in get_args(Precision):
        choices = ", ".join(get_args(Precision))
        raise CheckpointError(f"there is no precision `{shown(str(precision))}`", expected=choices)
    check_name(name, "the file to save")
    if int8.is_float(array) and precision != "int8":
        return PRECISIONS[precision]
    if array.dtype.newbyteorder("=") not in CODES:
        raise CheckpointError(
            f"`{name}` is of a type that cannot be saved", got=array.dtype, expected=list(CODES)
        )
    return array.dtype.newbyteorder("=")


def _build_header(
    tensors: Mapping[str, Array], stored: Mapping[str, np.dtype[Any]], metadata: Mapping[str, str]
) -> bytes:
    """Length and header, padded so that the values start at a multiple of eight."""
    header: dict[str, object] = {"__metadata__": dict(metadata)} if metadata else {}
    position = 0
    for name, array in tensors.items():
        end = position + array.size * stored[name].itemsize
        header[name] = {
            "dtype": CODES[stored[name]],
            "shape": list(array.shape),
            "data_offsets": [position, end],
        }
        position = end
    text = json_bytes(header, compact=True)
    text += b" " * (-len(text) % 8)
    return LENGTH.pack(len(text)) + text


def _write_tensor(stream: BinaryIO, name: str, array: Array, dtype: np.dtype[Any]) -> None:
    with np.errstate(over="ignore"):
        values = np.ascontiguousarray(array, dtype)
    if values.dtype != array.dtype and not np.isfinite(values.astype(np.float32)).all():
        raise CheckpointError(
            f"`{name}` has values that {dtype} cannot hold",
            hint='save it with precision "fp32"',
        )
    raw = values.reshape(-1).view(np.uint8)
    if sys.byteorder == "big":
        raw = as_values(raw.copy(), dtype).view(np.uint8)
    stream.write(raw.data)

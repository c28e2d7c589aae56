"""What a `.pt` file may refer to, as plain data: names, storages, tensors.

A checkpoint's pickle names functions and calls them. Nothing here imports or calls anything: a
name becomes a `Name`, a call of one of three known names becomes the corresponding record, and
every other name is refused.
"""

from dataclasses import dataclass
from typing import NoReturn, TypeGuard

import ml_dtypes
import numpy as np

from samgraph.checkpoint.tensor_rules import HIGHEST_RANK, LARGEST, is_addressable
from samgraph.errors import CheckpointError
from samgraph.untrusted.text import shown

ORDERED_DICT = ("collections", "OrderedDict")
REBUILD_TENSOR = ("torch._utils", "_rebuild_tensor_v2")
REBUILD_PARAMETER = ("torch._utils", "_rebuild_parameter")

STORAGES: dict[tuple[str, str], np.dtype[np.generic]] = {
    ("torch", "FloatStorage"): np.dtype(np.float32),
    ("torch", "HalfStorage"): np.dtype(np.float16),
    ("torch", "BFloat16Storage"): np.dtype(ml_dtypes.bfloat16),
    ("torch", "DoubleStorage"): np.dtype(np.float64),
    ("torch", "LongStorage"): np.dtype(np.int64),
    ("torch", "IntStorage"): np.dtype(np.int32),
    ("torch", "ShortStorage"): np.dtype(np.int16),
    ("torch", "CharStorage"): np.dtype(np.int8),
    ("torch", "ByteStorage"): np.dtype(np.uint8),
    ("torch", "BoolStorage"): np.dtype(np.bool_),
}
ALLOWED = frozenset({ORDERED_DICT, REBUILD_TENSOR, REBUILD_PARAMETER, *STORAGES})

RESAVE = (
    "only weights are read: save them alone with `torch.save(model.state_dict(), ...)`, "
    "or as `.safetensors`"
)


@dataclass(frozen=True, slots=True)
class Name:
    """A global name in a pickle. It is compared, never imported."""

    module: str
    name: str


@dataclass(frozen=True, slots=True)
class StorageRecord:
    """`count` values of one dtype, stored in the archive under `data/<key>`."""

    key: str
    dtype: np.dtype[np.generic]
    count: int


@dataclass(frozen=True, slots=True)
class TensorRecord:
    """A view of a storage: offset, shape and strides, in values."""

    storage: StorageRecord
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


def _refuse(source: str, fault: str) -> NoReturn:
    raise CheckpointError(f"`{source}` is damaged or was not made by `torch.save`: it {fault}")


def name_record(module: str, name: str, source: str) -> Name:
    """The record of an allowed name. Any other raises `CheckpointError`."""
    if (module, name) not in ALLOWED:
        raise CheckpointError(
            f"`{source}` asks for `{shown(f'{module}.{name}')}`, which is not a weight",
            hint=RESAVE,
        )
    return Name(module, name)


def storage_record(identity: object, source: str) -> StorageRecord:
    """The storage behind `("storage", type, key, location, count)`."""
    if type(identity) is not tuple or len(identity) != 5 or identity[0] != "storage":
        _refuse(source, "refers to something that is not a storage of five fields")
    _, kind, key, location, count = identity
    if type(kind) is not Name or (kind.module, kind.name) not in STORAGES:
        _refuse(source, "has a storage of no known type")
    if type(key) is not str or type(location) is not str or not _is_count(count):
        _refuse(source, "has a storage whose fields are of the wrong kinds")
    return StorageRecord(key, STORAGES[kind.module, kind.name], count)


def call_record(function: object, arguments: object, source: str) -> object:
    """The result of calling an allowed name: an empty mapping or a tensor."""
    if type(function) is not Name or type(arguments) is not tuple:
        _refuse(source, "calls something that is not a name, or not with a tuple")
    called = (function.module, function.name)
    if called == ORDERED_DICT and arguments == ():
        return {}
    if called == REBUILD_TENSOR and len(arguments) in (6, 7):
        return _tensor_record(arguments, source)
    if called == REBUILD_PARAMETER and len(arguments) == 3:
        if type(arguments[0]) is TensorRecord:
            return arguments[0]
        _refuse(source, "has a parameter that is not a tensor")
    _refuse(source, f"calls `{function.module}.{function.name}` in a way that is not read")


def _tensor_record(arguments: tuple[object, ...], source: str) -> TensorRecord:
    """Check the arguments of a tensor against each other and against its storage."""
    storage, offset, shape, strides = arguments[:4]
    if type(storage) is not StorageRecord or not _is_count(offset):
        _refuse(source, "has a tensor without a storage or an offset")
    if not _are_counts(shape) or not _are_counts(strides) or len(shape) != len(strides):
        _refuse(source, "has a tensor whose shape or strides are not lists of counts")
    if len(shape) > HIGHEST_RANK:
        _refuse(source, f"has a tensor of {len(shape)} dimensions, more than {HIGHEST_RANK}")
    if len(arguments) == 7 and arguments[6] not in (None, {}):
        _refuse(source, "has a tensor with a flag that changes its values")
    _check_window(storage, offset, shape, strides, source)
    return TensorRecord(storage, offset, shape, strides)


def _check_window(
    storage: StorageRecord,
    offset: int,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    source: str,
) -> None:
    """Raise for a tensor that exceeds its storage, or whose strides overlap."""
    values, last = 1, offset
    for size, stride in zip(shape, strides, strict=True):
        values *= size
        last += (size - 1) * stride
    outside = last >= storage.count if values else offset > storage.count
    if outside or values > storage.count or not is_addressable(shape):
        raise CheckpointError(
            f"`{source}` has a tensor that reaches outside its storage",
            got=f"shape {shape}, strides {strides}, offset {offset}",
            expected=f"within {storage.count:,} values",
        )


def _is_count(value: object) -> TypeGuard[int]:
    return type(value) is int and 0 <= value < LARGEST


def _are_counts(values: object) -> TypeGuard[tuple[int, ...]]:
    return type(values) is tuple and all(_is_count(value) for value in values)

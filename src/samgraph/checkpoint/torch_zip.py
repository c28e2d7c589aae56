"""`.pt` files as `torch.save` writes them, read without pickle and without torch.

    root/data.pkl       a pickle that describes tensors as views of numbered storages
    root/data/0, 1, ..  the storages, each a record of raw values
    root/byteorder      `little` or `big`

The pickle is interpreted by `PickleMachine`, which gives records; a storage is read once, directly
into its array, and tensors are views of it.
"""

import math
from collections.abc import Mapping

import numpy as np

from samgraph.checkpoint.pickle_machine import MOST_PROGRAM_BYTES, PickleMachine
from samgraph.checkpoint.pickle_records import RESAVE, StorageRecord, TensorRecord
from samgraph.checkpoint.source_file import Array, SourceFile, as_values, check_memory
from samgraph.checkpoint.tensor_rules import check_count, check_name, unwrap
from samgraph.checkpoint.zip_directory import ZipDirectory
from samgraph.errors import CheckpointError
from samgraph.untrusted.text import shown

BYTE_ORDERS = {b"little": "little", b"big": "big"}


def read(file: SourceFile) -> dict[str, Array]:
    """Every tensor of the state dict in `file`, in the order it was saved."""
    archive = ZipDirectory(file)
    _check_kind(archive, file)
    archive.require_plain()
    program = archive.read("data.pkl", limit=MOST_PROGRAM_BYTES)
    records = _find_tensors(PickleMachine(program, file.name).run(), file)
    _check_total(records, file)
    return _read_tensors(records, archive, file)


def _check_kind(archive: ZipDirectory, file: SourceFile) -> None:
    """Raise for other kinds of zip files, and name them."""
    names = archive.names
    if any(name == "constants.pkl" or name.startswith("code/") for name in names):
        raise CheckpointError(
            f"`{file.name}` is a TorchScript archive: a program, not only weights",
            hint="save the weights alone: `torch.save(torch.jit.load(...).state_dict(), ...)`",
        )
    if "data.pkl" not in archive:
        raise CheckpointError(
            f"`{file.name}` is a zip file, but not a checkpoint",
            got=", ".join(f"`{shown(name)}`" for name in names[:3]) or "no records",
            expected="a record `data.pkl`",
        )


def _find_tensors(tree: object, file: SourceFile) -> dict[str, TensorRecord]:
    """The mapping from name to tensor, also where training code has nested it."""
    if not isinstance(tree, Mapping):
        raise CheckpointError(
            f"`{file.name}` does not hold a mapping of tensors",
            got=type(tree).__name__,
            hint=RESAVE,
        )
    inner = unwrap(tree)
    check_count(len(inner), file.name)
    records = {}
    for key, value in inner.items():
        name = check_name(key, file.name)
        if not isinstance(value, TensorRecord):
            raise CheckpointError(
                f"`{file.name}`: `{shown(name)}` is not a tensor",
                got=type(value).__name__,
                hint=RESAVE,
            )
        records[name] = value
    return records


def _check_total(records: Mapping[str, TensorRecord], file: SourceFile) -> None:
    """Raise if tensors that share storages (tied weights) add up to far more than the file."""
    total = sum(math.prod(r.shape) * r.storage.dtype.itemsize for r in records.values())
    if total > 2 * file.size:
        raise CheckpointError(
            f"`{file.name}` unfolds to far more than its size",
            got=f"{total:,} bytes of tensors in a file of {file.size:,}",
        )
    check_memory(total, file.name)


def _read_tensors(
    records: Mapping[str, TensorRecord], archive: ZipDirectory, file: SourceFile
) -> dict[str, Array]:
    order = _byte_order(archive, file)
    storages: dict[str, tuple[StorageRecord, Array]] = {}
    tensors = {}
    for name, record in records.items():
        storage = record.storage
        if storage.key not in storages:
            storages[storage.key] = storage, _read_storage(storage, archive, order, file)
        known, values = storages[storage.key]
        if known != storage:
            raise CheckpointError(
                f"`{file.name}`: storage `{shown(storage.key)}` is described in two ways",
                got=f"{known.count:,} {known.dtype} and {storage.count:,} {storage.dtype}",
            )
        tensors[name] = _window(values, record)
    return tensors


def _byte_order(archive: ZipDirectory, file: SourceFile) -> str:
    """The byte order of the values; older files without a marker are little-endian."""
    if "byteorder" not in archive:
        return "little"
    marker = archive.read("byteorder", limit=16)
    if marker not in BYTE_ORDERS:
        raise CheckpointError(
            f"`{file.name}` has an unknown byte order",
            got=shown(repr(marker)),
            expected="`little` or `big`",
        )
    return BYTE_ORDERS[marker]


def _read_storage(
    storage: StorageRecord, archive: ZipDirectory, order: str, file: SourceFile
) -> Array:
    """The values of a storage, whose record must have exactly the size described."""
    record = f"data/{storage.key}"
    needed = storage.count * storage.dtype.itemsize
    if archive.size(record) != needed:
        raise CheckpointError(
            f"`{file.name}`: storage `{shown(storage.key)}` is not of the size it should be",
            got=f"{archive.size(record):,} bytes",
            expected=f"{needed:,} ({storage.count:,} values of {storage.dtype})",
        )
    raw = archive.read_bytes(record)
    if storage.dtype.kind == "b" and raw.size and raw.max() > 1:
        raise CheckpointError(
            f"`{file.name}`: storage `{shown(storage.key)}` is neither true nor false somewhere",
            got=int(raw.max()),
        )
    return as_values(raw, storage.dtype, order)


def _window(values: Array, record: TensorRecord) -> Array:
    """The tensor as a view of its storage, or as a copy where it is not contiguous.

    The record was checked against the storage's length when it was made.
    """
    count = math.prod(record.shape)
    dense = _dense_strides(record.shape)
    if count == 0 or all(
        size == 1 or stride == wanted
        for size, stride, wanted in zip(record.shape, record.strides, dense, strict=True)
    ):
        return values[record.offset : record.offset + count].reshape(record.shape)
    view = np.lib.stride_tricks.as_strided(
        values[record.offset :],
        record.shape,
        [stride * values.itemsize for stride in record.strides],
        writeable=False,
    )
    return np.ascontiguousarray(view)


def _dense_strides(shape: tuple[int, ...]) -> list[int]:
    """The strides of a contiguous tensor of `shape`, in values."""
    strides = [1] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        strides[axis] = strides[axis + 1] * shape[axis + 1]
    return strides

"""Checkpoints of several files: folders, and shards that an index names.

    {"weight_map": {"image_encoder.neck.convs.0.conv.weight": "model-1.safetensors", ...}}

The index says which shard has which tensor. Shards are files beside it; each must hold exactly the
tensors that the index says.
"""

import os
from collections.abc import Callable

from samgraph.checkpoint.source_file import Array, SourceFile, short_name
from samgraph.checkpoint.tensor_rules import LONGEST_NAME, MOST_TENSORS, check_count, check_name
from samgraph.errors import CheckpointError
from samgraph.untrusted.schema import SchemaError, mapping_of, text
from samgraph.untrusted.text import shown, strict_json

# A model of 20,000 tensors with long names has an index of about 3 MB.
LARGEST_INDEX = 4 << 20
MOST_SHARDS = 256
LONGEST_FILE_NAME = 255
# What a folder is read from, the first that is there.
FIRST_CHOICE = (
    "model.safetensors.index.json",
    "model.safetensors",
    "pytorch_model.bin.index.json",
    "pytorch_model.bin",
)
SUFFIXES = (".safetensors", ".pt", ".pth", ".bin", ".ckpt")
MOST_NAMED = 3

_WEIGHT_MAP = mapping_of(text(LONGEST_NAME), text(LONGEST_FILE_NAME), MOST_TENSORS)


def file_in(folder: str) -> str:
    """The path of the checkpoint, or of the index of its shards, in a folder.

    Raises:
        CheckpointError: There is none, or there are several and none has a usual name.
    """
    try:
        names = sorted(os.listdir(folder))
    except OSError as error:
        raise CheckpointError(
            f"the folder `{short_name(folder)}` cannot be read", got=shown(str(error.strerror))
        ) from error
    chosen = [name for name in FIRST_CHOICE if name in names]
    found = chosen[:1] or [name for name in names if name.lower().endswith(SUFFIXES)]
    if len(found) == 1:
        return os.path.join(folder, found[0])
    raise CheckpointError(
        f"the folder `{short_name(folder)}` is not one checkpoint",
        got=_listed(found) or "no checkpoint in it",
        expected=f"`{FIRST_CHOICE[0]}`, `{FIRST_CHOICE[1]}`, or one checkpoint",
        hint="give the path of the file" if found else None,
    )


def _listed(names: list[str]) -> str:
    listed = ", ".join(f"`{shown(name)}`" for name in names[:MOST_NAMED])
    return listed + (f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else "")


def is_index(beginning: bytes, size: int) -> bool:
    """Whether a file is JSON: it begins so, and not with the length of a safetensors header."""
    return beginning.lstrip()[:1] == b"{" and int.from_bytes(beginning[:8], "little") > size


def read_shards(
    file: SourceFile, read: Callable[[str], tuple[dict[str, Array], dict[str, str]]]
) -> tuple[dict[str, Array], dict[str, str]]:
    """The tensors of all shards that an index names, and the metadata of the first.

    Args:
        file: The index.
        read: Reads one shard, by its path.
    """
    named = _read_index(file)
    folder = os.path.dirname(file.path)
    missing = [name for name in named if not os.path.lexists(os.path.join(folder, name))]
    if missing:
        raise CheckpointError(
            f"{len(missing)} of the {len(named)} shards of `{file.name}` are missing",
            got=_listed(missing),
            hint="fetch all files of the model again",
        )
    tensors: dict[str, Array] = {}
    metadata: dict[str, str] = {}
    for shard, names in named.items():
        found, written = read(os.path.join(folder, shard))
        metadata = metadata or written
        if found.keys() != names:
            wrong = min(found.keys() ^ names)
            fault = "is in it, which the index does not say" if wrong in found else "is missing"
            raise CheckpointError(
                f"`{shown(shard)}` is not the shard that `{file.name}` describes",
                got=f"`{shown(wrong)}` {fault}",
                hint="fetch all files of the model again",
            )
        tensors |= found
    return tensors, metadata


def _read_index(file: SourceFile) -> dict[str, set[str]]:
    """The names of each shard's tensors."""
    if file.size > LARGEST_INDEX:
        raise _invalid(file, f"it has {file.size:,} bytes, more than {LARGEST_INDEX:,}")
    try:
        index = strict_json(file.read(0, file.size), most_bytes=LARGEST_INDEX)
    except ValueError as error:
        raise _invalid(file, shown(str(error))) from error
    if type(index) is not dict or "weight_map" not in index:
        raise _invalid(file, "it has no `weight_map`")
    try:
        placed: dict[str, str] = _WEIGHT_MAP(index["weight_map"], "weight_map")
    except SchemaError as error:
        raise _invalid(file, str(error)) from error
    check_count(len(placed), file.name)
    shards: dict[str, set[str]] = {}
    for name, shard in placed.items():
        check_name(name, file.name)
        if not _is_plain(shard):
            raise _invalid(file, f"`{shown(shard)}` is not the name of a file beside it")
        shards.setdefault(shard, set()).add(name)
    if len(shards) > MOST_SHARDS:
        raise _invalid(file, f"it names {len(shards)} shards, more than {MOST_SHARDS}")
    return shards


def _is_plain(name: str) -> bool:
    """Whether a name is that of a file in the same folder, and of a checkpoint."""
    is_inside = os.path.basename(name) == name and "\\" not in name and ":" not in name
    return is_inside and name.isprintable() and name.lower().endswith(SUFFIXES)


def _invalid(file: SourceFile, reason: str) -> CheckpointError:
    return CheckpointError(f"`{file.name}` is not an index of shards", got=reason)

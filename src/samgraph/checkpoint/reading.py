"""Reading of checkpoints; the format is recognised by content, never by file name."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import ml_dtypes
import numpy as np

from samgraph.checkpoint import int8, safetensors_file, shards, torch_zip
from samgraph.checkpoint.source_file import Array, SourceFile, path_text, short_name
from samgraph.checkpoint.tensor_rules import check_count, check_name, unwrap
from samgraph.checkpoint.transformers_names import is_transformers, to_meta
from samgraph.errors import CheckpointError
from samgraph.untrusted.text import shown

CHUNK = 1 << 20
MOST_NAMED = 5

LEGACY_TORCH = b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19."
RESAVE_LEGACY = "load it with torch and save it again: `torch.save` writes the new format"

# The first bytes of other formats, and their names.
FOREIGN_BEGINNINGS: tuple[tuple[bytes, str, str | None], ...] = (
    (LEGACY_TORCH, "a file in the format of torch before 1.6", RESAVE_LEGACY),
    (b"\x80", "a bare pickle, which is not read", "save the weights as `.safetensors`"),
    (b"\x89PNG", "a PNG image", None),
    (b"\xff\xd8\xff", "a JPEG image", None),
    (b"GIF8", "a GIF image", None),
    (b"\x1f\x8b", "a gzip file", "unpack it first"),
    (b"\x93NUMPY", "a numpy array", None),
    (b"\x89HDF", "an HDF5 file", None),
    (b"version https://git-lfs", "a Git LFS pointer, not the file itself", "run `git lfs pull`"),
    (b"<!DOCTYPE", "a web page", "the download failed: fetch the file again"),
    (b"<!doctype", "a web page", "the download failed: fetch the file again"),
    (b"<html", "a web page", "the download failed: fetch the file again"),
    (b"<?xml", "an XML document", "the download failed: fetch the file again"),
    (b"GGUF", "a GGUF file", None),
)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Tensors by name, in their stored dtype, and their source."""

    tensors: dict[str, Array]
    metadata: dict[str, str] = field(default_factory=dict)
    source: str = "a mapping"

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of every tensor, by name."""
        return {name: array.shape for name, array in self.tensors.items()}


def read(path: str | os.PathLike[str]) -> Checkpoint:
    """Read a `.pt` (zip format) or `.safetensors` file. No code in the file can run.

    A folder is read from the checkpoint in it; an index (`model.safetensors.index.json`) from the
    shards that it names. Tensors keep their dtype; `BF16` becomes `ml_dtypes.bfloat16`, weights of
    8 bits become float32. Costs one read of the files and their size in memory.
    """
    text = path_text(path)
    with SourceFile(shards.file_in(text) if os.path.isdir(text) else text) as file:
        if shards.is_index(file.read(0, min(32, file.size)), file.size):
            tensors, metadata = shards.read_shards(file, _read_shard)
        else:
            tensors, metadata = _read_file(file)
    if int8.is_quantised(metadata):
        tensors = int8.restore(tensors, file.path)
    return Checkpoint(tensors, metadata, file.path)


def _read_file(file: SourceFile) -> tuple[dict[str, Array], dict[str, str]]:
    """The tensors of one file, as stored, and its metadata."""
    beginning = file.read(0, min(32, file.size))
    if beginning.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return torch_zip.read(file), {}
    _refuse_foreign(beginning, file)
    return safetensors_file.read(file)


def _read_shard(path: str) -> tuple[dict[str, Array], dict[str, str]]:
    with SourceFile(path) as file:
        return _read_file(file)


def from_mapping(mapping: Mapping[str, object], source: str = "the mapping") -> Checkpoint:
    """A checkpoint from arrays, or from tensors that have `.detach().cpu().numpy()`.

    Arrays are not copied. `{"model": {...}}` is unwrapped as in a file.
    """
    if not isinstance(mapping, Mapping):
        raise CheckpointError(f"{source} is not a mapping", got=type(mapping).__name__)
    inner = unwrap(mapping)
    check_count(len(inner), source)
    tensors = {}
    for key, value in inner.items():
        name = check_name(key, source)
        tensors[name] = _as_array(value, name, source)
    return Checkpoint(tensors, {}, source)


def with_meta_names(checkpoint: Checkpoint) -> Checkpoint:
    """The same tensors under the names of Meta's files, renamed if they are from transformers."""
    if not is_transformers(checkpoint.tensors):
        return checkpoint
    return replace(checkpoint, tensors=to_meta(checkpoint.tensors, checkpoint.source))


def as_float32(checkpoint: Checkpoint) -> Checkpoint:
    """The checkpoint in float32; raises `CheckpointError` for values that are not finite.

    Float32 tensors are shared with the input, not copied.
    """
    tensors: dict[str, Array] = {}
    broken = []
    for name, array in checkpoint.tensors.items():
        if array.dtype.kind == "c" or array.dtype.hasobject:
            raise CheckpointError(
                f"`{name}` of `{short_name(checkpoint.source)}` is not made of real numbers",
                got=array.dtype,
            )
        with np.errstate(over="ignore"):
            tensors[name] = np.asarray(array, np.float32, order="C")
        if not _is_finite(tensors[name]):
            broken.append(name)
    if broken:
        more = f" and {len(broken) - MOST_NAMED} more" if len(broken) > MOST_NAMED else ""
        raise CheckpointError(
            f"`{short_name(checkpoint.source)}` has weights that are not finite numbers",
            got=", ".join(f"`{name}`" for name in broken[:MOST_NAMED]) + more,
            hint="training may have diverged: use an earlier checkpoint",
        )
    return replace(checkpoint, tensors=tensors)


def _refuse_foreign(beginning: bytes, file: SourceFile) -> None:
    """Raise an error that names the format of a file that is no checkpoint."""
    for start, kind, hint in FOREIGN_BEGINNINGS:
        if beginning.startswith(start) and beginning[8:9] != b"{":
            raise CheckpointError(
                f"`{file.name}` is not a checkpoint that is read here", got=kind, hint=hint
            )
    if not beginning:
        raise CheckpointError(f"`{file.name}` is empty")
    if len(beginning) > 8 and beginning[8:9] != b"{" and file.size > 8:
        raise CheckpointError(
            f"`{file.name}` is neither a `.safetensors` nor a `.pt` file",
            got=f"a file that begins with `{beginning[:12].hex(' ')}`",
        )


def _as_array(value: object, name: str, source: str) -> Array:
    """`value` as an array, without importing its library."""
    if isinstance(value, np.ndarray):
        array: Array = value
    else:
        detach = getattr(value, "detach", None)
        if detach is None:
            raise CheckpointError(f"`{name}` of {source} is not an array", got=type(value).__name__)
        try:
            array = _tensor_array(detach().cpu())
        except (AttributeError, TypeError, RuntimeError) as error:
            raise CheckpointError(
                f"`{name}` of {source} cannot be converted to an array", got=shown(str(error))
            ) from error
    if array.dtype.kind not in "fiub" and array.dtype != ml_dtypes.bfloat16:
        raise CheckpointError(f"`{name}` of {source} is not made of numbers", got=array.dtype)
    return array


def _tensor_array(tensor: object) -> Array:
    """The values of a tensor in host memory; bfloat16, which numpy lacks, by way of float32."""
    if str(getattr(tensor, "dtype", "")) == "torch.bfloat16":
        wide: Array = tensor.float().numpy()  # type: ignore[attr-defined]  # a tensor by duck typing
        return wide.astype(ml_dtypes.bfloat16)
    array: Array = tensor.numpy()  # type: ignore[attr-defined]  # as above
    return array


def _is_finite(array: Array) -> bool:
    """Whether every value is finite; checked in chunks, to save memory."""
    return all(bool(np.isfinite(chunk).all()) for chunk in _chunks(array.reshape(-1)))


def _chunks(flat: Array) -> Iterator[Array]:
    for start in range(0, flat.size, CHUNK):
        yield flat[start : start + CHUNK]

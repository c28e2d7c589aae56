"""What an embedding file may say, checked before it is used."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from samgraph.errors import ImageError
from samgraph.media.image.reading import MAX_SIDE
from samgraph.untrusted.schema import SchemaError, list_of, record, text, whole
from samgraph.untrusted.text import shown, strict_json

_SCHEMA = record(
    {
        "size_hw": list_of(whole(1, MAX_SIDE), 2, least=2),
        "name": text(4096),
        "fingerprint": text(64),
    }
)


@dataclass(frozen=True, slots=True)
class EmbeddingRecord:
    """What is written beside the maps: the image's size and name, and which weights made them."""

    size_hw: tuple[int, int]
    name: str
    fingerprint: str


def read_record(written: str | None, path: str) -> EmbeddingRecord:
    """The record of the embedding file at `path`, from the text in its metadata.

    Raises:
        ImageError: There is none, or it is not what `Embedding.save` wrote.
    """
    if written is None:
        raise _refused(path, "no record of an image")
    try:
        return EmbeddingRecord(**_SCHEMA(strict_json(written), "embedding"))
    except (SchemaError, ValueError) as error:
        raise _refused(path, str(error)) from error


def check_tensors(tensors: Mapping[str, NDArray[Any]], names: Sequence[str], path: str) -> None:
    """Refuse tensors that are not the three maps of one image: float32 [1, C, H, H], finite.

    The finer maps have four times and twice the side of the embedding.

    Raises:
        ImageError: They are not.
    """
    if set(tensors) != set(names):
        raise _refused(path, f"tensors {', '.join(sorted(tensors))[:100]}")
    for name, scale in zip(names, (1, 4, 2), strict=True):
        array = tensors[name]
        side = scale * tensors[names[0]].shape[-1] if array.ndim == 4 else 0
        is_map = array.ndim == 4 and array.shape[0] == 1 and array.shape[2:] == (side, side)
        if not is_map or array.dtype != np.float32 or not array.size:
            raise _damaged(path, f"`{name}` is {array.dtype} {list(array.shape)}")
        if not np.isfinite(array).all():
            raise _damaged(path, f"`{name}` has values that are no numbers")


def _refused(path: str, why: str) -> ImageError:
    hint = "`image.embedding.save(path)` writes one"
    return ImageError(f"`{shown(path)}` holds no embedding", got=shown(why), hint=hint)


def _damaged(path: str, why: str) -> ImageError:
    return ImageError(f"`{shown(path)}` holds a damaged embedding", got=shown(why))

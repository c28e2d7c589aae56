"""What an embedding file may contain, checked before it is used."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from samgraph.errors import ImageError
from samgraph.media.image.reading import MAX_SIDE
from samgraph.untrusted.schema import SchemaError, list_of, record, text, whole
from samgraph.untrusted.text import shown, strict_json

MOST_MAPS = 16
FAR = 1e6  # features of a model are below a thousand; products of larger ones may be infinite
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


def check_tensors(tensors: Mapping[str, NDArray[Any]], path: str) -> None:
    """Refuse tensors that are no feature maps of one image: float32 [1, C, H, H], in range.

    Which maps there must be, and of which size, depends on the model that will read them.

    Raises:
        ImageError: They are not.
    """
    if not 1 <= len(tensors) <= MOST_MAPS:
        raise _refused(path, f"{len(tensors)} tensors")
    for name, array in tensors.items():
        is_map = array.ndim == 4 and array.shape[0] == 1 and array.shape[2] == array.shape[3]
        if not is_map or array.dtype != np.float32 or not array.size:
            raise _damaged(path, f"`{name}` is {array.dtype} {list(array.shape)}")
        if not -FAR <= array.min() <= array.max() <= FAR:
            raise _damaged(path, f"`{name}` has values that are no numbers, or out of range")


def _refused(path: str, why: str) -> ImageError:
    hint = "`image.embedding.save(path)` writes one"
    return ImageError(f"`{shown(path)}` holds no embedding", got=shown(why), hint=hint)


def _damaged(path: str, why: str) -> ImageError:
    return ImageError(f"`{shown(path)}` holds a damaged embedding", got=shown(why))

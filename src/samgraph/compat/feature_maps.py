"""Feature maps of images as other libraries keep them: finest first, `no_mem_embed` added."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from samgraph.compat.host import to_host
from samgraph.compat.tensor import Tensor, tensor
from samgraph.errors import InputError
from samgraph.models.family import Features, SegmentationModel

NAMES = ("fine_0", "fine_1", "embedding")


def maps_of(core: SegmentationModel, features: Sequence[Features]) -> tuple[Tensor, ...]:
    """The maps of images, joined, on the host: [B, C/8, L, L], [B, C/4, L/2, L/2], [B, C, E, E]."""
    joined = [
        core.buffers.download(core.buffers.concat([one.maps[name] for one in features]))
        for name in NAMES
    ]
    return tensor(joined[0]), tensor(joined[1]), tensor(joined[2] + _no_memory(core))


def features_of(core: SegmentationModel, maps: Sequence[Any]) -> Features:
    """Features again, of maps that `maps_of` gave.

    Raises:
        InputError: They are not the maps of this model.
    """
    arrays = [np.ascontiguousarray(to_host(array), np.float32) for array in maps]
    wanted = core.feature_shapes
    if len(arrays) != len(NAMES) or any(
        array.shape[1:] != wanted[name][1:] for array, name in zip(arrays, NAMES, strict=True)
    ):
        raise InputError(
            "these are not feature maps of this model",
            got=", ".join(str(list(array.shape)) for array in arrays),
            expected=", ".join(str(["B", *wanted[name][1:]]) for name in NAMES),
        )
    arrays[2] = arrays[2] - _no_memory(core)
    upload = core.buffers.upload
    return Features({name: upload(a) for name, a in zip(NAMES, arrays, strict=True)})


def _no_memory(core: SegmentationModel) -> Any:
    return core.weights["no_mem_embed"].reshape(1, -1, 1, 1)

"""Feature maps of images as other libraries keep them: finest first, `no_mem_embed` added."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from samgraph.compat.host import to_host
from samgraph.compat.tensor import Tensor, tensor
from samgraph.errors import InputError
from samgraph.models.family import Features, SegmentationModel

_LAST = "embedding"


def maps_of(core: SegmentationModel, features: Sequence[Features]) -> tuple[Tensor, ...]:
    """The maps of images, joined, on the host; some models have one more, or the last alone.

    Of SAM 2 [B, C/8, L, L], [B, C/4, L/2, L/2] and [B, C, E, E].
    """
    found = []
    for name in _names(core):
        joined = core.buffers.concat([one.maps[name] for one in features])
        array = core.buffers.download(joined)
        found.append(tensor(array + _no_memory(core) if name == _LAST else array))
    return tuple(found)


def features_of(core: SegmentationModel, maps: Sequence[Any]) -> Features:
    """Features again, of maps that `maps_of` gave.

    Raises:
        InputError: They are not the maps of this model.
    """
    arrays = [np.ascontiguousarray(to_host(array), np.float32) for array in maps]
    names, wanted = _names(core), core.feature_shapes
    if [array.shape[1:] for array in arrays] != [wanted[name][1:] for name in names]:
        raise InputError(
            "these are not feature maps of this model",
            got=", ".join(str(list(array.shape)) for array in arrays),
            expected=", ".join(str(["B", *wanted[name][1:]]) for name in names),
        )
    arrays[-1] = arrays[-1] - _no_memory(core)
    return Features({n: core.buffers.upload(a) for n, a in zip(names, arrays, strict=True)})


def _names(core: SegmentationModel) -> list[str]:
    """The names of the maps, finest first."""
    shapes = core.feature_shapes
    return sorted(shapes, key=lambda name: (name == _LAST, -shapes[name][-1]))


def _no_memory(core: SegmentationModel) -> Any:
    return core.weights["no_mem_embed"].reshape(1, -1, 1, 1)

"""What the encoder makes of an image, kept in memory or in a file.

Encoding takes seconds and a click takes milliseconds: an embedding that was saved lets another
process start with the clicks. The file is a `.safetensors` of three arrays, with the image's size
and a fingerprint of the weights, because features mean nothing to other weights.
"""

import hashlib
import json
import os
from dataclasses import dataclass, replace

import numpy as np

from samgraph import checkpoint
from samgraph.engines import Buffers
from samgraph.engines.buffers import HOST_BUFFERS
from samgraph.errors import CheckpointError, ImageError
from samgraph.models.family import Features, SegmentationModel
from samgraph.predict.embedding_schema import check_tensors, read_record
from samgraph.untrusted.text import shown

_KEY = "samgraph.embedding"
_SAMPLES = 64


@dataclass(frozen=True, slots=True, eq=False)
class Embedding:
    """The feature maps of one image, and what they were made from."""

    features: Features
    size_hw: tuple[int, int]
    name: str
    fingerprint: str
    buffers: Buffers = HOST_BUFFERS

    def __repr__(self) -> str:
        height, width = self.size_hw
        megabytes = self.features.nbytes / 1e6
        return f"<embedding of {self.name}, {width}x{height}, {megabytes:.0f} MB>"

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a `.safetensors` file, whole or not at all.

        Raises:
            OutputError: The file cannot be written.
        """
        about = {"size_hw": self.size_hw, "name": self.name, "fingerprint": self.fingerprint}
        arrays = {name: self.buffers.download(x) for name, x in self.features.maps.items()}
        checkpoint.save(path, arrays, metadata={_KEY: json.dumps(about)})

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Embedding":
        """Read what `save` wrote.

        Raises:
            ImageError: The file is missing, damaged, or something else.
        """
        try:
            found = checkpoint.read(path)
        except CheckpointError as error:
            raise ImageError(
                f"`{shown(str(path))}` holds no embedding", got=error.what, hint=error.hint
            ) from error
        about = read_record(found.metadata.get(_KEY), found.source)
        check_tensors(found.tensors, found.source)
        maps = Features(dict(found.tensors))
        return cls(maps, about.size_hw, about.name, about.fingerprint)

    def on(self, model: SegmentationModel) -> "Embedding":
        """The embedding where a model computes.

        Raises:
            ImageError: Other weights, or another image size, have made it.
        """
        shapes = {name: tuple(array.shape) for name, array in self.features.maps.items()}
        if shapes != model.feature_shapes or self.fingerprint != fingerprint(model):
            grid = next(iter(shapes.values()))[-1]
            raise ImageError(
                f"the embedding of `{self.name}` was made by another model",
                got=f"a grid of {grid}, weights {self.fingerprint}",
                expected=f"a grid of {next(iter(model.feature_shapes.values()))[-1]}, "
                f"weights {fingerprint(model)}",
                hint="encode the image again",
            )
        maps = {
            name: x if model.buffers.owns(x) else model.buffers.upload(self.buffers.download(x))
            for name, x in self.features.maps.items()
        }
        return replace(self, features=Features(maps), buffers=model.buffers)


def fingerprint(model: SegmentationModel) -> str:
    """Which weights these are: a digest of every name and shape, and some values of each tensor."""
    digest = hashlib.sha256(str(model.config.image_size).encode())
    for name in sorted(model.weights):
        array = np.asarray(model.weights[name])
        step = max(1, array.size // _SAMPLES)
        digest.update(f"{name}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array.reshape(-1)[::step], np.float32).tobytes())
    return digest.hexdigest()[:16]


def embeddings(
    model: SegmentationModel,
    features: Features,
    sizes_hw: list[tuple[int, int]],
    names: list[str],
) -> list[Embedding]:
    """An embedding for each image of a batch that went through the encoder."""
    stamp = fingerprint(model)
    return [
        Embedding(features.image(i), size_hw, name, stamp, model.buffers)
        for i, (size_hw, name) in enumerate(zip(sizes_hw, names, strict=True))
    ]

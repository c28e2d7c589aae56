"""What the encoder makes of an image, kept in memory or in a file.

Encoding takes seconds and a click takes milliseconds: an embedding that was saved lets another
process start with the clicks. The file is a `.safetensors` of three arrays, with the image's size
and a fingerprint of the weights, because features mean nothing to other weights.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from samgraph import checkpoint
from samgraph.errors import CheckpointError, ImageError
from samgraph.models.sam2.config import Sam2Config
from samgraph.models.sam2.model import Sam2Model
from samgraph.predict.embedding_schema import check_tensors, read_record

Floats = NDArray[np.float32]

FEATURES = ("embedding", "fine_0", "fine_1")
_KEY = "samgraph.embedding"
_SAMPLES = 64


@dataclass(frozen=True, slots=True, eq=False)
class Embedding:
    """The encoder's three maps of one image, and what they were made from.

    embedding [1, C, E, E], without `no_mem_embed`; fine_0 [1, C/8, L, L]; fine_1 [1, C/4, 2E, 2E].
    """

    embedding: Floats
    fine_0: Floats
    fine_1: Floats
    size_hw: tuple[int, int]
    name: str
    fingerprint: str

    def __repr__(self) -> str:
        height, width = self.size_hw
        megabytes = sum(array.nbytes for array in self.features.values()) / 1e6
        return f"<embedding of {self.name}, {width}x{height}, {megabytes:.0f} MB>"

    @property
    def features(self) -> dict[str, Floats]:
        """The maps by name, as the decoder's graphs take them."""
        return {name: getattr(self, name) for name in FEATURES}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a `.safetensors` file, whole or not at all.

        Raises:
            OutputError: The place cannot be written to.
        """
        about = {"size_hw": self.size_hw, "name": self.name, "fingerprint": self.fingerprint}
        checkpoint.save(path, self.features, metadata={_KEY: json.dumps(about)})

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
                f"`{os.fspath(path)}` holds no embedding", got=error.what, hint=error.hint
            ) from error
        about = read_record(found.metadata.get(_KEY), os.fspath(path))
        check_tensors(found.tensors, FEATURES, os.fspath(path))
        embedding, fine_0, fine_1 = (found.tensors[feature] for feature in FEATURES)
        return cls(embedding, fine_0, fine_1, about.size_hw, about.name, about.fingerprint)

    def check(self, core: Sam2Model) -> None:
        """Refuse an embedding that other weights, or another image size, have made.

        Raises:
            ImageError: It was.
        """
        shapes = {name: array.shape for name, array in self.features.items()}
        if shapes != feature_shapes(core.config) or self.fingerprint != fingerprint(core):
            raise ImageError(
                f"the embedding of `{self.name}` was made by another model",
                got=f"a grid of {self.embedding.shape[-1]}, weights {self.fingerprint}",
                expected=f"a grid of {core.config.grid}, weights {fingerprint(core)}",
                hint="encode the image again",
            )


def feature_shapes(config: Sam2Config) -> dict[str, tuple[int, ...]]:
    """The shape of each map for one image."""
    C, E, L = config.channels, config.grid, config.mask_size
    return {
        "embedding": (1, C, E, E),
        "fine_0": (1, C // 8, L, L),
        "fine_1": (1, C // 4, 2 * E, 2 * E),
    }


def fingerprint(core: Sam2Model) -> str:
    """Which weights these are: a digest of every name and shape, and some values of each tensor."""
    digest = hashlib.sha256(str(core.config.image_size).encode())
    for name in sorted(core.weights):
        array = np.asarray(core.weights[name])
        step = max(1, array.size // _SAMPLES)
        digest.update(f"{name}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array.reshape(-1)[::step], np.float32).tobytes())
    return digest.hexdigest()[:16]


def embeddings(
    core: Sam2Model,
    features: Mapping[str, NDArray[Any]],
    sizes_hw: list[tuple[int, int]],
    names: list[str],
) -> list[Embedding]:
    """An embedding for each image of a batch that went through the encoder."""
    stamp = fingerprint(core)
    made = []
    for i, (size_hw, name) in enumerate(zip(sizes_hw, names, strict=True)):
        maps = {feature: features[feature][i : i + 1] for feature in FEATURES}
        made.append(Embedding(**maps, size_hw=size_hw, name=name, fingerprint=stamp))
    return made


def repeated(array: Floats, count: int) -> Floats:
    """The map of one image for each of `count` prompts; an engine makes the copies as it wants."""
    if count == 1:  # as it is: of what cannot be written to, OpenVINO makes a copy
        return array
    return np.broadcast_to(array, (count, *array.shape[1:]))

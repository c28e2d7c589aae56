"""Targets that read checkpoints: `.pt`, `.safetensors`, names of transformers, configs."""

import json
import random
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fuzz.mutators import NUMBERS, mutate_bytes, mutate_json, mutate_text
from fuzz.target import BrokenPromiseError, Target
from samgraph import checkpoint
from samgraph.checkpoint.transformers_names import POINTS, SIGNS
from samgraph.errors import CheckpointError, OptionError
from samgraph.models.loading import load_model
from samgraph.models.sam2.config import NANO, find_config, from_json
from samgraph.models.sam2.config_rules import RANGES
from samgraph.models.sam2.graphs import weight_shapes
from tests.checkpoint import making
from tests.hostile.checkpoint_mutants import mutate as mutate_checkpoint

Arrays = dict[str, NDArray[Any]]
SMALL: dict[str, Any] = {
    **json.loads(NANO.to_json()),
    "name": "small",
    "image_size": 64,
    "embed_dim": 8,
    "stages": [1, 1, 1, 1],
    "global_blocks": [],
    "channels": 16,
    "decoder_feedforward": 16,
    "memory_channels": 8,
    "memory_layers": 1,
    "memory_feedforward": 16,
    "prompt_mask_channels": 4,
}


def safetensors(rng: random.Random, tensors: Arrays, metadata: dict[str, str]) -> bytes:
    """A file of tensors, sometimes with a few of its bytes changed."""
    raw = making.safetensors_bytes(tensors, metadata)
    return mutate_bytes(rng, raw) if rng.random() < 0.1 else raw


def mutate_arrays(rng: random.Random, tensors: Arrays) -> Arrays:
    """Tensors of which one or two are of other values, types, shapes or names, or gone."""
    out = dict(tensors)
    for _ in range(rng.choice((0, 1, 1, 2))):
        name = rng.choice(list(out)) if out else "empty"
        array = out.get(name, np.zeros(1, np.float32))
        match rng.randrange(7):
            case 0:
                kinds = (np.float16, np.float64, np.int64, np.uint8, np.bool_, np.int16)
                with np.errstate(all="ignore"):
                    out[name] = array.astype(rng.choice(kinds))
            case 1:
                value = rng.choice((np.nan, np.inf, -1, 1e30, 0, 2**15))
                with np.errstate(all="ignore"):
                    out[name] = np.full_like(array, np.asarray(value).astype(array.dtype))
            case 2:
                shape = tuple(rng.choice((0, 1, 2, 3, 70)) for _ in range(rng.randrange(4)))
                out[name] = np.zeros(shape, array.dtype)
            case 3:
                out.pop(name, None)
            case 4:
                out[rng.choice(("object.9.passed", "x", name + ".1", "stream.frame"))] = array
            case 5:
                out[name] = array[:1] if array.ndim else array.reshape(1)
            case 6:
                out[name] = array.reshape(-1)
    return out or {"empty": np.zeros(1, np.uint8)}


class CheckpointTarget(Target):
    """Tensors of a file: `.pt` and `.safetensors`, renamed and made float32."""

    name, errors, seconds, megabytes = "checkpoint", (CheckpointError,), 1.0, 128

    def make(self, rng: random.Random) -> bytes:
        return mutate_checkpoint(rng)

    def use(self, data: bytes, folder: Path) -> None:
        path = folder / "weights"
        path.write_bytes(data)
        found = checkpoint.as_float32(checkpoint.with_meta_names(checkpoint.read(path)))
        if sum(array.nbytes for array in found.tensors.values()) > 8 * len(data) + 4096:
            raise BrokenPromiseError("its tensors are far larger than the file")

    def good(self) -> list[bytes]:
        return [making.torch_file(making.GOOD), making.safetensors_bytes(making.GOOD)]


class TransformersTarget(Target):
    """A checkpoint under the names of the transformers library, and tensors of any shape."""

    name, errors, seconds, megabytes = "transformers", (CheckpointError,), 1.0, 128

    @cached_property
    def tensors(self) -> Arrays:
        """A tensor for every rule that renames one, and the two that tell the format."""
        names = [*transformers_names(), *SIGNS]
        tensors: Arrays = {name: np.ones((2, 2), np.float32) for name in names}
        return {**tensors, POINTS: np.ones((4, 8), np.float32)}

    def make(self, rng: random.Random) -> bytes:
        chosen = rng.sample(sorted(self.tensors), rng.randrange(8))
        tensors = {name: self.tensors[name] for name in (*chosen, *SIGNS)}
        if rng.random() < 0.6:
            tensors = mutate_arrays(rng, tensors)
        if rng.random() < 0.3:
            name = mutate_text(rng, rng.choice(sorted(tensors)))[:600]
            tensors[name.encode("utf-8", "replace").decode()] = np.ones(2, np.float32)
        raw = making.safetensors_bytes(tensors)
        length = int.from_bytes(raw[:8], "little")
        header = json.loads(raw[8 : 8 + length])
        if rng.random() < 0.6:  # numbers that no bytes of the file stand for
            entry = header[POINTS if POINTS in header else rng.choice(list(header))]
            entry["shape"] = [rng.choice((0, 4, *NUMBERS[:34])) for _ in range(rng.randrange(4))]
            if rng.random() < 0.5:
                entry["data_offsets"] = [0, 0]
        return making.with_header(json.dumps(header).encode(), raw[8 + length :])

    def use(self, data: bytes, folder: Path) -> None:
        path = folder / "transformers"
        path.write_bytes(data)
        checkpoint.as_float32(checkpoint.with_meta_names(checkpoint.read(path)))

    def good(self) -> list[bytes]:
        return [making.safetensors_bytes(self.tensors)]


def transformers_names() -> list[str]:
    """Names that the rules of the format rename."""
    layers = (
        "memory_encoder.mask_downsampler.layers.0.conv",
        "memory_encoder.memory_fuser.layers.0.depthwise_conv",
        "memory_encoder.projection",
        "mask_decoder.upscale_conv1",
        "object_pointer_proj.proj_in",
        "prompt_encoder.mask_embed.conv2",
        "vision_encoder.backbone.blocks.3.mlp.proj_out",
        "vision_encoder.neck.convs.1",
    )
    single = ["no_memory_embedding", "shared_image_embedding.positional_embedding"]
    return [f"{layer}.{part}" for layer in layers for part in ("weight", "bias")] + single


class ModelTarget(Target):
    """A whole model from a file, whose config is in its metadata or told by its tensors."""

    name, errors, seconds, megabytes = "model", (CheckpointError,), 4.0, 256

    @cached_property
    def weights(self) -> Arrays:
        shapes = weight_shapes(find_config(SMALL))
        return {name: np.full(shape, 0.01, np.float32) for name, shape in shapes.items()}

    def make(self, rng: random.Random) -> bytes:
        config = SMALL if rng.random() < 0.2 else mutate_config(rng)
        written = json.dumps(config)
        if rng.random() < 0.1:
            written = mutate_text(rng, written)
        tensors = self.weights if rng.random() < 0.5 else {"x": np.zeros(2, np.float32)}
        if rng.random() < 0.3:
            tensors = mutate_arrays(rng, tensors)
        return safetensors(rng, tensors, {"samgraph.config": written})

    def use(self, data: bytes, folder: Path) -> None:
        path = folder / "model.safetensors"
        path.write_bytes(data)
        load_model(path)

    def good(self) -> list[bytes]:
        metadata = {"samgraph.config": json.dumps(SMALL)}
        return [making.safetensors_bytes(self.weights, metadata)]


def mutate_config(rng: random.Random) -> Any:
    """A config with other numbers, mostly of the right kind."""
    config = dict(SMALL)
    if rng.random() < 0.3:
        return mutate_json(rng, config)
    for _ in range(rng.choice((1, 1, 2, 4))):
        name = rng.choice(list(config))
        low, high = RANGES.get(name, (0, 1))
        choices = (low, high, low - 1, high + 1, 1, 2, 3, 4, 6, 8, 16, 32, 64, *NUMBERS[:30])
        if isinstance(config[name], list):
            count = rng.choice((len(config[name]), rng.randrange(6)))
            config[name] = [rng.choice(choices) for _ in range(count)]
        elif isinstance(config[name], bool):
            config[name] = not config[name]
        else:
            config[name] = rng.choice(choices)
    return config


class ConfigTarget(Target):
    """A config from its text."""

    name, errors, seconds, megabytes = "config", (OptionError,), 0.5, 128

    def make(self, rng: random.Random) -> bytes:
        text = json.dumps(mutate_config(rng))
        text = mutate_text(rng, text) if rng.random() < 0.3 else text
        return text.encode("utf-8", "surrogatepass")

    def use(self, data: bytes, folder: Path) -> None:
        config = from_json(data.decode("utf-8", "surrogatepass"))
        if from_json(config.to_json()) != config:
            raise BrokenPromiseError("a config does not read back")

    def good(self) -> list[bytes]:
        return [NANO.to_json().encode(), json.dumps(SMALL).encode()]


TARGETS = (CheckpointTarget, TransformersTarget, ModelTarget, ConfigTarget)

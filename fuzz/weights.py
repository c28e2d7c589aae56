"""Targets that read checkpoints: `.pt`, `.safetensors`, shards, transformers' names, configs."""

import json
import random
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fuzz.mutators import NUMBERS, joined, mutate_bytes, mutate_json, mutate_text, separated
from fuzz.target import BrokenPromiseError, Target
from samgraph import checkpoint
from samgraph.checkpoint import int8
from samgraph.checkpoint.transformers_names import POINTS, SIGNS
from samgraph.errors import CheckpointError, OptionError
from samgraph.models import families
from samgraph.models.loading import load_model
from samgraph.models.sam2.config import CONFIGS as RELEASED
from samgraph.models.sam2.config_rules import RANGES
from tests.checkpoint import making
from tests.hostile.checkpoint_mutants import mutate as mutate_checkpoint
from tests.models.sisters import EDGETAM, POOLED_SCORES, SMALL_NANO

Arrays = dict[str, NDArray[Any]]
SMALL: dict[str, Any] = {
    **json.loads(RELEASED["sam2.1-tiny"].to_json()),
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
FAMILIES = {family.name: family for family in families()}
# A small config of each family, by its fields.
CONFIGS: dict[str, dict[str, Any]] = {
    "sam2": SMALL,
    "edgetam": {**json.loads(EDGETAM.to_json()), "image_size": 64},
    "efficienttam": {**json.loads(POOLED_SCORES.to_json()), "image_size": 64},
    "nano": {**json.loads(SMALL_NANO.to_json()), "image_size": 64},
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


class ShardTarget(Target):
    """A checkpoint of several files and of weights in 8 bits: the index, then the shards."""

    name, errors, seconds, megabytes = "shards", (CheckpointError,), 1.0, 128
    names = ("model-1.safetensors", "model-2.safetensors")
    secret = "outside"  # a tensor of a file that no index may reach

    @cached_property
    def shards(self) -> list[Arrays]:
        large = np.linspace(-1, 1, int8.SMALLEST, dtype=np.float32).reshape(64, -1)
        return [
            int8.quantise({"a": large, "b": np.ones(3, np.float32)}),
            int8.quantise({"c": large}),
        ]

    def index(self) -> dict[str, Any]:
        placed = zip(self.names, self.shards, strict=True)
        return {"weight_map": {name: file for file, shard in placed for name in shard}}

    def make(self, rng: random.Random) -> bytes:
        shards = [
            mutate_arrays(rng, shard) if rng.random() < 0.4 else shard for shard in self.shards
        ]
        index = mutate_json(rng, self.index()) if rng.random() < 0.6 else self.index()
        if rng.random() < 0.2 and isinstance(index, dict):
            ways = ("../outside.safetensors", "/outside.safetensors", "index.json", ".", "x.pt")
            index["weight_map"] = {self.secret: rng.choice(ways)}
        text = json.dumps(index)
        text = mutate_text(rng, text) if rng.random() < 0.1 else text
        metadata = dict(int8.METADATA) if rng.random() < 0.9 else {"samgraph.weights": "int4"}
        files = [safetensors(rng, shard, metadata) for shard in shards]
        return joined([text.encode("utf-8", "surrogatepass"), *files])

    def use(self, data: bytes, folder: Path) -> None:
        text, *files = separated(data)
        inner = folder / "model"
        inner.mkdir(exist_ok=True)
        outside = making.safetensors_bytes({self.secret: np.ones(2, np.float32)})
        (folder / "outside.safetensors").write_bytes(outside)
        (inner / "model.safetensors.index.json").write_bytes(text)
        for name, raw in zip(self.names, files, strict=True):
            (inner / name).write_bytes(raw)
        found = checkpoint.as_float32(checkpoint.with_meta_names(checkpoint.read(inner)))
        if self.secret in found.tensors:
            raise BrokenPromiseError("a file outside the folder was read")
        if any(array.dtype == np.int8 for array in found.tensors.values()):
            raise BrokenPromiseError("weights were left in 8 bits")

    def good(self) -> list[bytes]:
        files = [making.safetensors_bytes(shard, dict(int8.METADATA)) for shard in self.shards]
        return [joined([json.dumps(self.index()).encode(), *files])]


class ModelTarget(Target):
    """A whole model from a file, whose config is in its metadata or implied by its tensors."""

    name, errors, seconds, megabytes = "model", (CheckpointError,), 4.0, 256

    @cached_property
    def weights(self) -> dict[str, Arrays]:
        found = {}
        for name, family in FAMILIES.items():
            shapes = family.weight_shapes(family.find_config(CONFIGS[name]))
            found[name] = {key: np.full(shape, 0.01, np.float32) for key, shape in shapes.items()}
        return found

    def make(self, rng: random.Random) -> bytes:
        kind = rng.choice(list(CONFIGS))
        config = CONFIGS[kind] if rng.random() < 0.2 else mutate_config(rng, kind)
        written = json.dumps(config)
        if rng.random() < 0.1:
            written = mutate_text(rng, written)
        tensors = self.weights[kind] if rng.random() < 0.5 else {"x": np.zeros(2, np.float32)}
        if rng.random() < 0.3:
            tensors = mutate_arrays(rng, tensors)
        named = kind if rng.random() < 0.9 else rng.choice(list(CONFIGS))
        return safetensors(rng, tensors, {"samgraph.config": written, "samgraph.family": named})

    def use(self, data: bytes, folder: Path) -> None:
        path = folder / "model.safetensors"
        path.write_bytes(data)
        load_model(path)

    def good(self) -> list[bytes]:
        return [
            making.safetensors_bytes(
                self.weights[kind],
                {"samgraph.config": json.dumps(config), "samgraph.family": kind},
            )
            for kind, config in CONFIGS.items()
        ]


def mutate_config(rng: random.Random, kind: str = "sam2") -> Any:
    """A config of a family with other numbers, mostly of the right kind."""
    config = dict(CONFIGS[kind])
    if rng.random() < 0.3:
        return mutate_json(rng, config)
    ranges = {**RANGES, **type(FAMILIES[kind].find_config(config)).ranges()}
    for _ in range(rng.choice((1, 1, 2, 4))):
        name = rng.choice(list(config))
        low, high = ranges.get(name, (0, 1))
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
    """A config of any family from its text."""

    name, errors, seconds, megabytes = "config", (OptionError,), 0.5, 128

    def make(self, rng: random.Random) -> bytes:
        kind = rng.choice(list(CONFIGS))
        text = json.dumps(mutate_config(rng, kind))
        text = mutate_text(rng, text) if rng.random() < 0.3 else text
        return f"{kind}\n{text}".encode("utf-8", "surrogatepass")

    def use(self, data: bytes, folder: Path) -> None:
        kind, _, text = data.decode("utf-8", "surrogatepass").partition("\n")
        read = FAMILIES[kind].config_from_json
        config = read(text)
        if read(config.to_json()) != config:
            raise BrokenPromiseError("a config does not read back")
        config.smallest()

    def good(self) -> list[bytes]:
        found = {**CONFIGS, "sam2": json.loads(RELEASED["sam2.1-tiny"].to_json())}
        return [f"{kind}\n{json.dumps(config)}".encode() for kind, config in found.items()]


TARGETS = (CheckpointTarget, TransformersTarget, ShardTarget, ModelTarget, ConfigTarget)

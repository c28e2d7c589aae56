"""From a checkpoint to a model: which config it is for, and whether every tensor fits."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from samgraph import checkpoint
from samgraph.checkpoint import Checkpoint
from samgraph.checkpoint.builtin import built_in_path, is_built_in
from samgraph.errors import CheckpointError, OptionError
from samgraph.graph import Graph
from samgraph.models.sam2.config import CONFIGS, Sam2Config, find_config, from_json
from samgraph.models.sam2.graphs import TRACES, UNREAD, weight_shapes
from samgraph.models.sam2.model import Sam2Model
from samgraph.runtime import CompileOptions, find_profile
from samgraph.runtime.profiles import ProfileLike

Source = str | os.PathLike[str] | Mapping[str, Any]
ConfigLike = str | Sam2Config | Mapping[str, Any]

_CONFIG_KEY = "samgraph.config"
_SUFFIXES = (".pt", ".pth", ".safetensors", ".bin", ".ckpt")


def load_model(
    source: Source,
    *,
    config: ConfigLike | None = None,
    device: str = "auto",
    engine: str | None = None,
    precision: str | None = None,
    threads: int | None = None,
    profile: ProfileLike | None = None,
    image_size: int | None = None,
    options: CompileOptions | None = None,
    mirror: str | None = None,
) -> Sam2Model:
    """A model from a name, a checkpoint file, or a mapping of arrays.

    The config is recognised; give it only for models that have no name here. `options` sets
    everything at once instead of engine, precision, threads and profile.
    """
    if options is None:
        options = CompileOptions(
            engine=engine,
            precision=precision,  # type: ignore[arg-type]  # checked there
            threads=threads,
            profile=find_profile(profile, weights_file(source)),
        )
    found = read_source(source, mirror=mirror)
    chosen = recognise(found) if config is None else find_config(config)
    if image_size is not None:
        chosen = chosen.at_size(image_size)
    traced: dict[str, Graph] = {}
    if config is not None or not is_built_in(source):  # whose hash says that its tensors fit
        traced = {name: trace(chosen) for name, trace in TRACES.items()}
        _check(found, chosen, traced)
    weights = checkpoint.as_float32(found).tensors
    return Sam2Model(chosen, weights, device=device, options=options, traced=traced)


def save_model(model: Sam2Model, path: str | os.PathLike[str], precision: str = "fp32") -> None:
    """Write a `.safetensors` file that `load_model` reads back, config included."""
    metadata = {_CONFIG_KEY: model.config.to_json(), "format": "pt"}
    checkpoint.save(path, model.checkpoint(), precision=precision, metadata=metadata)  # type: ignore[arg-type]  # checked there


def read_source(source: Source, *, mirror: str | None = None) -> Checkpoint:
    """The tensors of a name, a file or a mapping, under Meta's names."""
    if isinstance(source, Mapping):
        return checkpoint.with_meta_names(checkpoint.from_mapping(source))
    if not isinstance(source, str | os.PathLike):
        raise CheckpointError(
            f"a model cannot be loaded from a `{type(source).__name__}`",
            expected="a name, a path, or a mapping of arrays",
        )
    if is_built_in(source):
        return checkpoint.read(built_in_path())
    text = os.fspath(source)
    if _looks_like_file(text):
        return checkpoint.with_meta_names(checkpoint.read(text))
    from samgraph.checkpoint import download

    release = checkpoint.find_release(text)
    path = download.fetch(release, mirror=mirror)
    return checkpoint.with_meta_names(checkpoint.read(path))


def weights_file(source: object) -> Path | None:
    """The file that weights come from, where it is one of the user's own."""
    if not isinstance(source, str | os.PathLike) or is_built_in(source):
        return None
    text = os.fspath(source)
    return Path(text) if _looks_like_file(text) else None


def recognise(found: Checkpoint) -> Sam2Config:
    """The config of a checkpoint: written in it, or told by its names and shapes."""
    written = found.metadata.get(_CONFIG_KEY)
    if written is not None:
        try:
            return from_json(written)
        except OptionError as error:
            raise CheckpointError(
                f"`{found.source}` has a config that makes no sense", got=error.what
            ) from error
    shapes = found.shapes
    for config in CONFIGS.values():
        if _signature(config) == _found_signature(shapes):
            return config
    known = {name: weight_shapes(config) for name, config in CONFIGS.items()}
    likely = checkpoint.best_match(shapes, known)
    expected = known[likely[0]] if likely else known["sam2.1-tiny"]
    checkpoint.check(expected, shapes, source=found.source, known=known)
    raise CheckpointError(
        f"`{found.source}` is not one of the released models", hint="pass `config=`"
    )


def _signature(config: Sam2Config) -> tuple[object, ...]:
    """What tells the released models apart: width, depth, background, version."""
    return (
        config.embed_dim,
        sum(config.stages),
        config.background_size,
        config.hidden_object_embedding,
    )


def _found_signature(shapes: Mapping[str, tuple[int, ...]]) -> tuple[object, ...]:
    trunk = "image_encoder.trunk."
    background = shapes.get(f"{trunk}pos_embed", (0, 0, 0, 0))
    blocks = {key.split(".")[3] for key in shapes if key.startswith(f"{trunk}blocks.")}
    hidden = "no_obj_embed_spatial" in shapes
    width = background[1] if len(background) == 4 else 0
    return (width, len(blocks), tuple(background[2:]), hidden)


def _check(found: Checkpoint, config: Sam2Config, traced: Mapping[str, Graph]) -> None:
    """Every tensor is used, none is missing, all have the right shape."""
    expected = {
        value.name: value.type.lengths for graph in traced.values() for value in graph.params
    }
    shapes = found.shapes
    optional = {name: shapes[name] for name in UNREAD if name in shapes}
    if expected | optional == shapes:
        return
    known = {name: weight_shapes(known_config) for name, known_config in CONFIGS.items()}
    checkpoint.check(expected | optional, shapes, source=found.source, known=known)


def _looks_like_file(text: str) -> bool:
    """Paths have a suffix we know, a separator, or exist; anything else is a name."""
    if text.startswith("facebook/"):
        return Path(text).exists()
    separated = "/" in text or "\\" in text or text.startswith(("~", "."))
    return separated or text.lower().endswith(_SUFFIXES) or Path(text).exists()

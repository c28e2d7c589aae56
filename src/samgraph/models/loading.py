"""Loading of a model from a checkpoint: its config is recognised and every tensor checked."""

import os
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any

from samgraph import checkpoint
from samgraph.checkpoint import Checkpoint, LoadReport
from samgraph.checkpoint.builtin import built_in_path, is_built_in
from samgraph.checkpoint.match import LIKELY
from samgraph.checkpoint.sister_files import find_sister, not_downloaded, published_name
from samgraph.checkpoint.source_file import short_name
from samgraph.engines.devices import DeviceLike
from samgraph.errors import CheckpointError, GraphError, OptionError, SamgraphWarning, ShapeError
from samgraph.graph import Graph
from samgraph.models import families
from samgraph.models.family import Family, ModelConfig, SegmentationModel
from samgraph.runtime import Approximation, CompileOptions, default_cache_dir, find_profile
from samgraph.runtime.ahead import Ahead
from samgraph.runtime.devices import loading_library
from samgraph.runtime.profiles import ProfileLike
from samgraph.untrusted.text import shown

Source = str | os.PathLike[str] | Mapping[str, Any]
ConfigLike = str | ModelConfig | Mapping[str, Any]

_CONFIG_KEY, _FAMILY_KEY = "samgraph.config", "samgraph.family"
_SUFFIXES = (".pt", ".pth", ".safetensors", ".bin", ".ckpt")


def load_model(
    source: Source,
    *,
    config: ConfigLike | None = None,
    device: DeviceLike = "auto",
    engine: str | None = None,
    precision: str | None = None,
    threads: int | None = None,
    profile: ProfileLike | None = None,
    image_size: int | None = None,
    approximation: str | None = None,
    options: CompileOptions | None = None,
    mirror: str | None = None,
    strict: bool = True,
) -> SegmentationModel:
    """A model from a name, a checkpoint file or folder, or a mapping of arrays.

    The config is recognised; give it only for models without a name here. `options` is an
    alternative to engine, precision, threads, profile and approximation. Unless `strict`, tensors
    that the model does not have are ignored, and what needs missing ones cannot be run; a warning
    names both.
    """
    if options is None:
        options = CompileOptions(
            engine=engine,
            precision=precision,  # type: ignore[arg-type]  # checked there
            threads=threads,
            profile=find_profile(profile, weights_file(source)),
            approximation=approximation,
        )
    ahead = _ahead(source, device, options, (config, image_size))
    with loading_library(device, options, ahead.begin):
        found = read_source(source, mirror=mirror)
    if config is None:
        family, chosen = recognise(found, strict)
        _check_name(source, found, chosen)
    else:
        family, chosen = find_config(config)
    if image_size is not None:
        chosen = chosen.at_size(image_size)
    chosen = approximate(family, chosen, options.chosen_approximation)
    traced: dict[str, Graph] = {}
    report = LoadReport()
    if config is not None or not is_built_in(source):  # whose hash says that its tensors fit
        if _CONFIG_KEY in found.metadata and config is None:
            # before maps of the grid are made
            _check(found, family, chosen, _traced(family, chosen.smallest(), found), strict)
        traced = _traced(family, chosen, found)
        report = _check(found, family, chosen, traced, strict)
        if not strict and report != LoadReport():
            warnings.warn(f"{short_name(found.source)}: {report}", SamgraphWarning, stacklevel=5)
    weights = checkpoint.as_float32(found).tensors
    for name in report.unexpected:
        del weights[name]
    model = family.build(chosen, weights, device=device, options=options, traced=traced)
    model.report, model.session.ahead = report, ahead
    return model


def _ahead(
    source: Source, device: DeviceLike, options: CompileOptions, chosen: tuple[object, ...]
) -> Ahead:
    """The largest graph of the last start with this file, unchanged since, and these options."""
    if not options.cache or not isinstance(source, str | os.PathLike):
        return Ahead()
    state: tuple[object, ...] = ()
    file = weights_file(source)
    if file is not None:
        try:
            status = os.stat(file)
        except (OSError, ValueError):  # which reading it will say
            return Ahead()
        state = (os.path.abspath(file), status.st_size, status.st_mtime_ns)
    folder = default_cache_dir(options.cache_dir)
    return Ahead(folder, state or os.fspath(source), str(device), options, *chosen)


def approximate(family: Family, config: Any, approximation: Approximation | None) -> Any:
    """The config of a model that computes less; the config itself without an approximation."""
    if approximation is None:
        return config
    if approximation.name not in family.approximations:
        raise OptionError(
            f"{config.name} has no approximation `{approximation.name}`",
            expected=", ".join(sorted(family.approximations)) or "none",
        )
    if approximation.memory_pool > 1:
        config = replace(config, memory_pool=approximation.memory_pool)
    if approximation.input_divisor > 1:
        config = config.at_size(config.image_size // approximation.input_divisor)
    return config


def exact_config(model: SegmentationModel) -> Any:
    """The config of a model without its approximation."""
    approximation, config = model.session.options.chosen_approximation, model.config
    if approximation is not None and approximation.memory_pool > 1:
        config = replace(config, memory_pool=1)
    if approximation is not None and approximation.input_divisor > 1:
        config = config.at_size(config.image_size * approximation.input_divisor)
    return config


def find_config(wanted: ConfigLike) -> tuple[Family, Any]:
    """The family and config for a name, a config, or a mapping of fields.

    A mapping may name its family under `family`; the default is the first.
    """
    known = families()
    if isinstance(wanted, Mapping):
        fields = dict(wanted)
        name = fields.pop("family", known[0].name)
        chosen = next((family for family in known if family.name == name), None)
        if chosen is None:
            names = ", ".join(family.name for family in known)
            raise OptionError(f"there is no model family `{name}`", expected=names)
        return chosen, chosen.find_config(fields)
    for family in known:
        own = {**family.configs, **family.named}
        if (isinstance(wanted, str) and wanted in own) or any(
            type(wanted) is type(config) for config in own.values()
        ):
            return family, family.find_config(wanted)
    if isinstance(wanted, str):
        every = [each for family in known for each in (*family.configs, *family.named)]
        near = get_close_matches(wanted[:80].lower().replace("_", "-"), every, n=3) or every
        raise OptionError(f"there is no config `{shown(wanted)}`", expected=", ".join(near))
    return known[0], known[0].find_config(wanted)  # which says what it may be


def save_model(
    model: SegmentationModel, path: str | os.PathLike[str], precision: str = "fp32"
) -> None:
    """Write a `.safetensors` file that `load_model` reads back, config included.

    An approximation is not written: the file holds the model itself.
    """
    metadata = {
        _CONFIG_KEY: exact_config(model).to_json(),
        _FAMILY_KEY: model.family,
        "format": "pt",
    }
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

    sister = find_sister(text)
    if sister is not None:
        path = download.cache_folder() / sister.file
        if not path.is_file():
            raise not_downloaded(sister, path.parent)
    else:
        path = download.fetch(checkpoint.find_release(text), mirror=mirror)
    return checkpoint.with_meta_names(checkpoint.read(path))


def _check_name(source: Source, found: Checkpoint, config: Any) -> None:
    """Say so where a file with the name of a sister model's holds another model.

    By its path it is loaded as what it is; asked for by name it is a `CheckpointError`.
    """
    if not isinstance(source, str | os.PathLike) or is_built_in(source):
        return
    text = os.fspath(source)
    is_path = _looks_like_file(text)
    sister = find_sister(Path(text).stem if is_path else text)
    if sister is None or sister.name == config.name:
        return
    file = short_name(found.source)
    what = f"`{file}` is a checkpoint of `{config.name}`, not of `{sister.name}`"
    if is_path:
        warnings.warn(f"{what}: loaded as `{config.name}`", SamgraphWarning, stacklevel=6)
        return
    raise CheckpointError(
        what, expected=f"`{sister.file}`, from {sister.where}", hint="load it by its path"
    )


def weights_file(source: object) -> Path | None:
    """The path of the weights, if the source is a file of the user."""
    if not isinstance(source, str | os.PathLike) or is_built_in(source):
        return None
    text = os.fspath(source)
    return Path(text) if _looks_like_file(text) else None


def recognise(found: Checkpoint, strict: bool = True) -> tuple[Family, Any]:
    """The family and config of a checkpoint: from its metadata, or from its names and shapes.

    Unless `strict`, a model that the checkpoint is close to will do.
    """
    written, known = found.metadata.get(_CONFIG_KEY), families()
    if written is not None:
        name = found.metadata.get(_FAMILY_KEY, known[0].name)
        family = next((family for family in known if family.name == name), known[0])
        try:
            return family, family.config_from_json(written)
        except OptionError as error:
            raise CheckpointError(
                f"`{short_name(found.source)}` has an invalid config", got=error.what
            ) from error
    shapes = found.shapes
    for family in known:
        signature = family.found_signature(shapes)
        for config in family.configs.values():
            if signature is not None and family.signature(config) == signature:
                return family, _variant(found, family, config)
    every = _every_shape()
    likely = checkpoint.best_match(shapes, every)
    if likely and likely[1] >= LIKELY and not strict:
        return find_config(likely[0])
    expected = every[likely[0]] if likely else min(every.values(), key=len)
    checkpoint.check(expected, shapes, source=found.source, known=every)
    raise CheckpointError(
        f"`{short_name(found.source)}` is not one of the released models", hint="pass `config=`"
    )


def _variant(found: Checkpoint, family: Family, config: Any) -> Any:
    """The config, or another with the same tensors, by the name or hash of the file.

    If neither identifies it, it is the config itself, with a warning that names its variants.
    """
    others, name = family.variants.get(config.name, ()), None
    if os.path.isfile(found.source):
        name = published_name(found.source, by_hash=bool(others))
    known = {**family.configs, **family.named}.get(name or "")
    if known is not None and family.signature(known) == family.signature(config):
        return known
    if not others:
        return config
    listed = ", ".join(f"`{other}`" for other in others)
    text = f"`{short_name(found.source)}` is loaded as `{config.name}`, but may be {listed}"
    hint = "give the file the name it was published with, or pass `config=`"
    warnings.warn(f"{text}: {hint}", SamgraphWarning, stacklevel=7)
    return config


def _every_shape() -> dict[str, dict[str, tuple[int, ...]]]:
    """The tensors of every config that can be recognised, by its name."""
    return {
        name: _smallest_shapes(family.weight_shapes, config)
        for family in families()
        for name, config in family.configs.items()
    }


@cache
def _smallest_shapes(
    weight_shapes: Callable[[Any], dict[str, tuple[int, ...]]], config: Any
) -> dict[str, tuple[int, ...]]:
    """The tensors of a config; found by tracing it, which takes tenths of a second."""
    return weight_shapes(config.smallest())


def _traced(family: Family, config: Any, found: Checkpoint) -> dict[str, Graph]:
    """The graphs of a config; `CheckpointError` if a config from a file cannot be traced."""
    try:
        return family.trace(config)
    except (ShapeError, GraphError) as error:
        raise CheckpointError(
            f"`{short_name(found.source)}`: config `{config.name}` makes no model", got=error.what
        ) from error


def _check(
    found: Checkpoint, family: Family, config: Any, traced: Mapping[str, Graph], strict: bool
) -> LoadReport:
    """Every tensor is used, none is missing, all have the right shape; what is accepted if not."""
    expected = {
        value.name: value.type.lengths for graph in traced.values() for value in graph.params
    }
    shapes = found.shapes
    optional = {name: shapes[name] for name in family.unread(config) if name in shapes}
    if expected | optional == shapes:
        return LoadReport()
    return checkpoint.check(
        expected | optional, shapes, source=found.source, known=_every_shape(), strict=strict
    )


def _looks_like_file(text: str) -> bool:
    """Paths have a suffix we know, a separator, or exist; anything else is a name."""
    if text.startswith("facebook/"):
        return os.path.exists(text)
    separated = "/" in text or "\\" in text or text.startswith(("~", "."))
    return separated or text.lower().endswith(_SUFFIXES) or os.path.exists(text)

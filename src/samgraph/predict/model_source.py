"""The source of a model, from which other processes load it again."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from samgraph.engines.devices import DeviceLike
from samgraph.errors import CheckpointError
from samgraph.models.family import SegmentationModel
from samgraph.models.loading import ConfigLike, Source, load_model, weights_file
from samgraph.runtime import CompileOptions


@dataclass(frozen=True, slots=True)
class ModelSource:
    """Where a model came from, so that another process can load it again.

    `source` is a name, an absolute path, or the tensors themselves.
    """

    source: Source
    config: ConfigLike | None
    device: DeviceLike
    image_size: int | None
    options: CompileOptions
    mirror: str | None
    strict: bool = True


def load_from(wanted: ModelSource) -> SegmentationModel:
    """Load the model from its source."""
    return load_model(
        wanted.source,
        config=wanted.config,
        device=wanted.device,
        image_size=wanted.image_size,
        options=wanted.options,
        mirror=wanted.mirror,
        strict=wanted.strict,
    )


def lasting(wanted: ModelSource) -> ModelSource:
    """The source as a process in another folder can read it; tensors are taken from the model."""
    wanted = replace(wanted, device=str(wanted.device))
    file = weights_file(wanted.source)
    if file is not None:
        return replace(wanted, source=str(Path(file).expanduser().absolute()))
    return replace(wanted, source={}) if isinstance(wanted.source, Mapping) else wanted


def load_again(wanted: ModelSource, weights: str) -> SegmentationModel:
    """The model from its source, for one that was pickled.

    Raises:
        CheckpointError: Its file has other weights by now.
    """
    from samgraph.predict.features import fingerprint

    core = load_from(wanted)
    if fingerprint(core) != weights:
        raise CheckpointError(
            "the weights of a pickled model have changed since",
            got=f"{wanted.source}: {fingerprint(core)}",
            expected=weights,
        )
    return core

"""The model as people use it: images, videos and streams on top of the compiled graphs."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from samgraph.checkpoint.builtin import NANO
from samgraph.engines.devices import DeviceLike
from samgraph.models.family import SegmentationModel
from samgraph.models.loading import ConfigLike, Source, load_model, save_model
from samgraph.runtime import CompileOptions
from samgraph.runtime.profiles import ProfileLike

if TYPE_CHECKING:
    from samgraph.predict.everything.generate import Everything
    from samgraph.predict.image.batch import EncodedImages
    from samgraph.predict.image.encoded import EncodedImage
    from samgraph.predict.video.stream import Stream
    from samgraph.predict.video.video import Video


class Model:
    """SAM 2, loaded and ready. Made by `samgraph.load`."""

    def __init__(self, core: SegmentationModel) -> None:
        self.core = core

    def __repr__(self) -> str:
        return repr(self.core)

    @property
    def config(self) -> Any:
        """Every dimension of the model."""
        return self.core.config

    @property
    def graphs(self) -> Mapping[str, Any]:
        """The compiled graphs by name; each has `run(**inputs)`."""
        return self.core.graphs

    def image(self, source: Any, **options: Any) -> EncodedImage:
        """An image, encoded once, to be prompted: path, bytes, PIL image or array."""
        from samgraph.predict.image.encoded import encode_image

        return encode_image(self.core, source, **options)

    def images(self, sources: Iterable[Any], **options: Any) -> EncodedImages:
        """Several images, encoded in batches."""
        from samgraph.predict.image.batch import encode_images

        return encode_images(self.core, sources, **options)

    def everything(self, source: Any, **options: Any) -> Everything:
        """Masks of everything in an image, with no prompt."""
        from samgraph.predict.everything.generate import segment_everything

        return segment_everything(self.core, source, **options)

    def video(self, source: Any, **options: Any) -> Video:
        """A video to track objects through: file, folder, list or iterator."""
        from samgraph.predict.video.video import open_video

        return open_video(self.core, source, **options)

    def stream(self, **options: Any) -> Stream:
        """A live stream: one frame at a time, in constant memory."""
        from samgraph.predict.video.stream import open_stream

        return open_stream(self.core, **options)

    def resume(self, path: str | os.PathLike[str], **options: Any) -> Video | Stream:
        """A video or stream session that was saved."""
        from samgraph.predict.video.sessions import resume

        return resume(self.core, path, **options)

    def save(self, path: str | os.PathLike[str], precision: str = "fp32") -> None:
        """Write the weights and the config to a `.safetensors` file."""
        save_model(self.core, path, precision)


def load(
    source: Source | None = None,
    *,
    config: ConfigLike | None = None,
    device: DeviceLike = "auto",
    engine: str | None = None,
    precision: str | None = None,
    threads: int | None = None,
    profile: ProfileLike | None = None,
    image_size: int | None = None,
    options: CompileOptions | None = None,
    mirror: str | None = None,
) -> Model:
    """A model by name ("sam2.1-tiny"), from a checkpoint file, or from a mapping of arrays.

    With no source it is the built-in model, `samgraph-nano`, which needs no network. Released
    weights are downloaded once and checked. The config is recognised from the file; give it only
    for a model that has no name here. `profile` says how graphs are compiled: a `Profile`, its
    name, or a TOML file; `weights.profiles.toml` next to `weights.pt` is read too.
    """
    core = load_model(
        NANO.name if source is None else source,
        config=config,
        device=device,
        engine=engine,
        precision=precision,
        threads=threads,
        profile=profile,
        image_size=image_size,
        options=options,
        mirror=mirror,
    )
    return Model(core)

"""samgraph: SAM 2 from compiled graphs.

    import samgraph

    model = samgraph.load()                    # the built-in model; or "sam2.1-tiny", or a file
    image = model.image("photo.jpg")           # encoded once
    result = image.predict(points=[(500, 375)])
    result.save("cutout.png", "cutout")

    everything = model.everything("photo.jpg") # automatic masks

    video = model.video("clip.mp4")
    video.add(frame=0, object=1, points=[(210, 350)])
    video.export("out.mp4")                    # or: for frame in video.track(): frame.masks
    stream = model.stream()                    # frames as they come

    scan = model.volume("scan.nii.gz")         # or an array [Z, Y, X], or a DICOM series
    scan.add(slice=42, box=(100, 120, 180, 200))
    scan.segment().save("mask.nii.gz")

`load` makes a `Model`; its methods make an `EncodedImage`, `EncodedImages`, `Everything`, a `Video`
or a `Stream`; these give a `Result` or a `FrameResult`. Errors are in `samgraph.errors`, formats in
`samgraph.formats`, the reference's names in `samgraph.compat`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from samgraph.errors import SamgraphError, SamgraphWarning
from samgraph.version import __version__

if TYPE_CHECKING:
    from samgraph.predict.everything.generate import Everything
    from samgraph.predict.features import Embedding
    from samgraph.predict.image.batch import EncodedImages
    from samgraph.predict.image.encoded import EncodedImage
    from samgraph.predict.image.result import Result
    from samgraph.predict.model import Model, load
    from samgraph.predict.video.result import FrameResult
    from samgraph.predict.video.stream import Stream
    from samgraph.predict.video.video import Video
    from samgraph.predict.volume.result import VolumeResult
    from samgraph.predict.volume.volume import Volume

__all__ = [
    "Embedding",
    "EncodedImage",
    "EncodedImages",
    "Everything",
    "FrameResult",
    "Model",
    "Result",
    "SamgraphError",
    "SamgraphWarning",
    "Stream",
    "Video",
    "Volume",
    "VolumeResult",
    "__version__",
    "load",
]

# Where names are that are imported when they are first used, so that `import samgraph` is fast.
_LAZY = {
    "Embedding": "features",
    "EncodedImage": "image.encoded",
    "EncodedImages": "image.batch",
    "Everything": "everything.generate",
    "FrameResult": "video.result",
    "Model": "model",
    "Result": "image.result",
    "Stream": "video.stream",
    "Video": "video.video",
    "Volume": "volume.volume",
    "VolumeResult": "volume.result",
    "load": "model",
}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(f"samgraph.predict.{_LAZY[name]}"), name)
    raise AttributeError(f"module `samgraph` has no `{name}`")


def __dir__() -> list[str]:
    return sorted({*__all__, "errors", *(name for name in globals() if name.startswith("__"))})

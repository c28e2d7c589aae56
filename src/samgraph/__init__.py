"""samgraph: SAM 2 from compiled graphs.

import samgraph
model = samgraph.load()  # the built-in model; or "sam2.1-tiny", or a checkpoint
result = model.image("photo.jpg").predict(points=[(500, 375)])
result.save("cutout.png", "cutout")
"""

from typing import TYPE_CHECKING, Any

from samgraph.version import __version__

if TYPE_CHECKING:
    from samgraph.predict.model import Model, load

__all__ = ["Model", "__version__", "load"]


def __getattr__(name: str) -> Any:
    """Import the model when it is first used, so that `import samgraph` is fast."""
    if name in ("Model", "load"):
        from samgraph.predict import model

        return getattr(model, name)
    raise AttributeError(f"module `samgraph` has no `{name}`")

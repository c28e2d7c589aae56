"""samgraph: SAM 2 from compiled graphs.

import samgraph
model = samgraph.load("sam2.1-tiny")
result = model.image("truck.jpg").predict(points=[(500, 375)], labels=[1])
result.save("out.png")
"""

from typing import TYPE_CHECKING, Any

from samgraph.version import __version__

if TYPE_CHECKING:
    from samgraph.predict.model import Model, load

__all__ = ["Model", "__version__", "load"]


def __getattr__(name: str) -> Any:
    """Import the rest when it is first used, so that `import samgraph` stays quick."""
    if name in ("Model", "load"):
        from samgraph.predict import model

        return getattr(model, name)
    raise AttributeError(f"module `samgraph` has no `{name}`")

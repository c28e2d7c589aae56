"""samgraph: SAM 2 from compiled graphs."""

from samgraph.version import __version__

__all__ = ["__version__"]

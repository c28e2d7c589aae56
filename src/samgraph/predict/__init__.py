"""What people do with a model: prompt an image, segment everything, track through a video."""

from samgraph.predict.model import Model, load

__all__ = ["Model", "load"]

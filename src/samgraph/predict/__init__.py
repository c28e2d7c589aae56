"""Prompting images, automatic masks, tracking through videos and streams."""

from samgraph.predict.model import Model, load

__all__ = ["Model", "load"]

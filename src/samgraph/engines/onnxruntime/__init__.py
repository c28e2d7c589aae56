"""ONNX Runtime: graphs lowered to ONNX, run by whatever execution providers are installed."""

from samgraph.engines.onnxruntime.engine import engine

__all__ = ["engine"]

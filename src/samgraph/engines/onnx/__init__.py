"""Graphs as ONNX models: one lowering rule per op, of standard operators only.

No engine of its own: what runs ONNX, and what writes it to files, both begin here.
"""

from samgraph.engines.onnx.build import build, declared
from samgraph.engines.onnx.lowering import LOWER
from samgraph.engines.onnx.pipeline import PIPELINE

__all__ = ["LOWER", "PIPELINE", "build", "declared"]

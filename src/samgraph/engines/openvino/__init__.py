"""The CPU engine: an OpenVINO model built node by node from our graph, with nothing between.

The precision is always set: left alone, OpenVINO takes bf16 where the processor announces it,
which can kill the process (see `bf16`). Integers wider than 32 bits are computed in 32.
"""

from samgraph.engines.openvino.engine import engine

__all__ = ["engine"]

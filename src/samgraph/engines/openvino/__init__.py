"""The CPU engine: an OpenVINO model built node by node from our graph, with nothing between.

The precision is always set: left alone, OpenVINO takes bf16 where the processor announces it,
which can kill the process (see `bf16`). Integers wider than 32 bits are computed in 32.
"""

import sys

# Importing OpenVINO reports the import to Google Analytics, from a process forked for it, unless
# the package it uses for that cannot be found. Nothing of ours reports anything to anyone.
if "openvino" not in sys.modules:
    sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]  # "not there"

from samgraph.engines.openvino.engine import engine

__all__ = ["engine"]

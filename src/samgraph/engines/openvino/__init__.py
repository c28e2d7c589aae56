"""The CPU engine: an OpenVINO model built directly from a graph, node by node.

The precision is always set: by default, OpenVINO uses bf16 where the processor reports it, which
can kill the process (see `bf16`). Integers wider than 32 bits are computed in 32.
"""

import sys

# Importing OpenVINO reports the import to Google Analytics, from a forked process, unless its
# telemetry package cannot be imported. samgraph sends no telemetry.
if "openvino" not in sys.modules:
    sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]  # "not there"

from samgraph.engines.openvino.engine import engine

__all__ = ["engine"]

"""Engines compile and run graphs. `find_engine` imports an engine on request."""

from samgraph.engines.buffers import Buffer, Buffers
from samgraph.engines.devices import Device, parse_device
from samgraph.engines.protocol import (
    Decision,
    Engine,
    EngineOptions,
    MemoryUsage,
    Program,
    engine_names,
    find_engine,
)
from samgraph.passes.pipeline import Precision

__all__ = [
    "Buffer",
    "Buffers",
    "Decision",
    "Device",
    "Engine",
    "EngineOptions",
    "MemoryUsage",
    "Precision",
    "Program",
    "engine_names",
    "find_engine",
    "parse_device",
]

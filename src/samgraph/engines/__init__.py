"""Engines: places where a graph runs. `find_engine` imports one only when it is asked for."""

from samgraph.engines.buffers import Buffer, Buffers
from samgraph.engines.protocol import (
    Engine,
    EngineOptions,
    MemoryUsage,
    Precision,
    Program,
    engine_names,
    find_engine,
)

__all__ = [
    "Buffer",
    "Buffers",
    "Engine",
    "EngineOptions",
    "MemoryUsage",
    "Precision",
    "Program",
    "engine_names",
    "find_engine",
]

"""Where the torch engine is tested: on the CPU always, on a GPU where there is one."""

from typing import Any

import pytest

from samgraph.graph import Graph
from samgraph.graph.types import Array
from samgraph.runtime import CompiledGraph, CompileOptions, Session


def devices() -> list[Any]:
    """The devices as pytest parameters; torch must be there."""
    import torch

    absent = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
    return ["cpu", pytest.param("cuda", marks=absent)]


def on_torch(
    device: str, graph: Graph, weights: dict[str, Array] | None = None, **options: Any
) -> CompiledGraph:
    """The graph compiled for the torch engine on a device."""
    chosen = CompileOptions(engine="torch", cache=False, **options)
    return Session(device, chosen).compile(graph, weights)

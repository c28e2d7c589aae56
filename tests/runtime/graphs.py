"""Small graphs for the tests of the runtime."""

import numpy as np

from samgraph import ops
from samgraph.graph import Builder, Graph
from samgraph.graph.types import Array


def mlp() -> tuple[Graph, dict[str, Array]]:
    """Two linear maps over f32[M,8], and their weights."""
    builder = Builder("mlp")
    x = builder.input("x", "f32[M,8]")
    at = builder.scope() / "layers"
    hidden = ops.gelu(ops.linear(x, (at / 0).weight("weight", 16, 8), (at / 0).weight("bias", 16)))
    graph = builder.finish(y=ops.linear(hidden, (at / 1).weight("weight", 4, 16)))
    rng = np.random.default_rng(0)
    shapes = {value.name: value.type.lengths for value in graph.params}
    return graph, {name: rng.standard_normal(s).astype(np.float32) for name, s in shapes.items()}


def two_inputs() -> Graph:
    """f32[2,3] + f32[M,2,3], and an integer input that is handed on."""
    builder = Builder("two")
    a, b = builder.input("a", "f32[2,3]"), builder.input("b", "f32[M,2,3]")
    index = builder.input("index", "i64[M]")
    return builder.finish(sum=a + b, index=index)

"""Inputs of timed graphs; `tests/cli/test_bench.py` times a model."""

import numpy as np

from samgraph import ops
from samgraph.evaluate.speed import typical_inputs
from samgraph.graph import Builder


def test_inputs_have_typical_sizes_and_their_own_dtypes() -> None:
    builder = Builder("net")
    frames = builder.input("frames", "f32[N,F,3]")
    rows, flag = builder.input("rows", "i64[N,Q]"), builder.input("flag", "bool[N]")
    picked = ops.gather(frames, rows, 1, batch=1)
    graph = builder.finish(y=picked, flag=flag)

    found = typical_inputs(graph)

    assert {name: array.shape for name, array in found.items()} == {
        "frames": (1, 7, 3), "rows": (1, 16), "flag": (1,),
    }  # fmt: skip
    assert {name: array.dtype.name for name, array in found.items()} == {
        "frames": "float32", "rows": "int64", "flag": "bool",
    }  # fmt: skip
    assert np.unique(found["rows"]).tolist() == [1]
    assert np.unique(found["frames"]).size == 21

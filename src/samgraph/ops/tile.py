"""tile: the whole tensor repeated `counts[i]` times along axis i, one copy after another."""

import numpy as np

from samgraph.graph.builder import Tensor, emit
from samgraph.graph.dims import Dim
from samgraph.graph.registry import expect, register
from samgraph.graph.types import Array, TensorType


def tile(x: Tensor, *counts: Dim) -> Tensor:
    """The whole tensor repeated along each axis."""
    return emit("tile", x, counts=tuple(counts))


def infer(x: TensorType, *, counts: tuple[Dim, ...]) -> TensorType:
    """Each axis grows by its count."""
    ok = len(counts) == x.rank and all(not isinstance(n, int) or n >= 1 for n in counts)
    expect(ok, "tile", "one count per axis", got=counts, want=f"{x.rank} counts >= 1")
    return x.reshaped(n * length for n, length in zip(counts, x.shape, strict=True))


def reference(x: Array, *, counts: tuple[int, ...]) -> Array:
    """Numpy's own."""
    return np.tile(x, counts)


register("tile", infer=infer, reference=reference, meaning=__doc__)

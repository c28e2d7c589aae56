"""constant: an array that is part of the graph."""

from samgraph.graph.graph import Literal
from samgraph.graph.registry import register
from samgraph.graph.types import Array, TensorType, type_of


def infer(*, value: Literal) -> TensorType:
    """The type of the array."""
    return type_of(value.array)


def reference(*, value: Literal) -> Array:
    """The array itself, read-only."""
    return value.array


register("constant", infer=infer, reference=reference, meaning=__doc__)

"""Which axis of a graph's inputs and outputs is its batch, and inputs cut along it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from samgraph.graph import Graph


@dataclass(frozen=True, slots=True)
class BatchAxis:
    """The inputs whose first axis is the batch; the others are the same for all of it."""

    names: tuple[str, ...]

    @classmethod
    def of(cls, graph: Graph) -> "BatchAxis | None":
        """The batch of a graph: the length that all outputs have first; None without one."""
        firsts = {value.type.shape[:1] for _, value in graph.outputs}
        if len(firsts) != 1:
            return None
        names = tuple(v.name for v in graph.inputs if v.type.shape[:1] in firsts)
        is_symbol = all(first and not isinstance(first[0], int) for first in firsts)
        return cls(names) if names and is_symbol else None

    def length(self, inputs: Mapping[str, Any]) -> int:
        """How many are in the batch."""
        return len(inputs[self.names[0]])

    def split(self, inputs: Mapping[str, Any], most: int) -> Iterator[dict[str, Any]]:
        """The inputs of batches of at most so many; views."""
        for start in range(0, self.length(inputs), most):
            some = {name: inputs[name][start : start + most] for name in self.names}
            yield {**inputs, **some}

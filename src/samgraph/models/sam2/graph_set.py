"""The graphs of a family by name, as functions of its config."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from samgraph.errors import GraphError
from samgraph.graph import Graph
from samgraph.models.sam2.tracker_config import TrackerConfig
from samgraph.untrusted.text import shown

Traces = Mapping[str, Callable[[Any], Graph]]


@dataclass(frozen=True, slots=True)
class GraphSet:
    """How the graphs of a family are traced.

    Args:
        traces: Graphs that together read every tensor of a checkpoint.
        tracking: Versions of them for tracking.
        pair: Two of `traces` that are cut from one graph, and how both are made at once.
        unread: Tensors of a checkpoint that no graph reads.
    """

    traces: Traces
    tracking: Traces
    pair: tuple[tuple[str, str], Callable[[Any], tuple[Graph, Graph]]]
    unread: Callable[[Any], Mapping[str, tuple[int, ...]]]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all graphs."""
        return (*self.traces, *self.tracking)

    def trace(self, config: TrackerConfig, names: Iterable[str] = ()) -> dict[str, Graph]:
        """Graphs by name, by default those that read a checkpoint; of a pair, both."""
        wanted, every = dict.fromkeys(names or self.traces), {**self.traces, **self.tracking}
        for name in wanted:
            if name not in every:
                raise GraphError(f"there is no graph `{shown(name)}`", expected=", ".join(every))
        pair, cut = self.pair
        both = dict(zip(pair, cut(config), strict=True)) if wanted.keys() & set(pair) else {}
        return {name: every[name](config) for name in wanted if name not in both} | both

    def weight_shapes(self, config: TrackerConfig) -> dict[str, tuple[int, ...]]:
        """The name and shape of every tensor of a checkpoint for this config."""
        shapes: dict[str, tuple[int, ...]] = {}
        for graph in self.trace(config).values():
            for value in graph.params:
                shapes[value.name] = value.type.lengths
        return shapes | dict(self.unread(config))

"""samgraph-nano ready to run: SAM 2's methods over its own graphs."""

from typing import ClassVar

from samgraph.models.nano.config import NanoConfig
from samgraph.models.nano.graphs import GRAPHS
from samgraph.models.sam2.graph_set import GraphSet
from samgraph.models.sam2.model import Sam2Model


class NanoModel(Sam2Model):
    """samgraph-nano ready to run. Safe to use from several threads at once."""

    family = "nano"
    graph_set: ClassVar[GraphSet] = GRAPHS
    config: NanoConfig

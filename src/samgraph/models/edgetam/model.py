"""EdgeTAM ready to run: SAM 2's methods over its own graphs."""

from typing import ClassVar

from samgraph.models.edgetam.config import EdgeTamConfig
from samgraph.models.edgetam.graphs import GRAPHS
from samgraph.models.sam2.graph_set import GraphSet
from samgraph.models.sam2.model import Sam2Model


class EdgeTamModel(Sam2Model):
    """EdgeTAM ready to run. Safe to use from several threads at once."""

    family = "edgetam"
    graph_set: ClassVar[GraphSet] = GRAPHS
    config: EdgeTamConfig

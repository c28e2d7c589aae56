"""EfficientTAM ready to run: SAM 2's methods over its own graphs."""

from typing import ClassVar

from samgraph.models.efficienttam.config import EfficientTamConfig
from samgraph.models.efficienttam.graphs import GRAPHS, POOLED
from samgraph.models.family import BankRead
from samgraph.models.sam2.graph_set import GraphSet
from samgraph.models.sam2.model import Sam2Model


class EfficientTamModel(Sam2Model):
    """EfficientTAM ready to run. Safe to use from several threads at once."""

    family = "efficienttam"
    graph_set: ClassVar[GraphSet] = GRAPHS
    config: EfficientTamConfig

    @property
    def frame_graphs(self) -> tuple[str, ...]:
        """As of SAM 2; a full memory is pooled in some variants."""
        *others, attention = super().frame_graphs
        return (*others, attention if self.config.pooling == "none" else attention + POOLED)

    def attend_graph(self, read: BankRead) -> str:
        """The graph that attends to a memory; more than one frame is pooled in some variants."""
        name = Sam2Model.attend_graph(self, read)
        is_pooled = self.config.pooling != "none" and read.frames.shape[1] > 1
        return name + POOLED if is_pooled else name

"""Graphs whose weights do not learn, as functions of tensors.

On a GPU they are evaluated op by op as the student's; on a CPU compiled as they are served, several
times as fast.
"""

from collections.abc import Callable, Mapping

import numpy as np
import torch

from samgraph.engines.protocol import Precision
from samgraph.engines.torch import Evaluator
from samgraph.graph import Array, Graph
from samgraph.runtime import CompileOptions, Session
from training.student import Tensors


def evaluator(
    graph: Graph, weights: Mapping[str, Array], device: str, precision: Precision = "fp32"
) -> Callable[[Tensors], Tensors]:
    """The graph as a function from its inputs to its outputs; other inputs are ignored."""
    own = {value.name: np.asarray(weights[value.name], np.float32) for value in graph.params}
    if device != "cpu":
        kept = {name: torch.from_numpy(array).to(device) for name, array in own.items()}
        evaluate = Evaluator(graph, precision)
        return lambda given: evaluate({**kept, **given})
    compiled = Session("cpu", CompileOptions()).compile(graph, own)
    names = [value.name for value in graph.inputs]

    def run(given: Tensors) -> Tensors:
        found = compiled.run_numpy({name: given[name].numpy() for name in names})
        return {name: torch.from_numpy(np.array(value)) for name, value in found.items()}

    return run
